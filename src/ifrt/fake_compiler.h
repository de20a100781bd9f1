// For tests: a compiler whose programs say themselves what they are.
#ifndef OPENPATHWAYS_IFRT_FAKE_COMPILER_H_
#define OPENPATHWAYS_IFRT_FAKE_COMPILER_H_

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "compiler/compiler.h"

namespace openpathways::ifrt {

// "Compiles" a serialized compiler::Program into that Program; anything else is a compile error. Thread-safe.
class FakeCompiler : public compiler::Compiler {
 public:
  Future<compiler::CompiledProgramRef> Compile(std::string program, std::string compile_options) override {
    std::lock_guard lock(mu_);
    compiler::CompiledProgramRef& cached = cache_[{program, compile_options}];
    if (cached == nullptr) {
      auto compiled = std::make_shared<compiler::CompiledProgram>();
      if (!compiled->program.ParseFromString(program)) {
        return Future<compiler::CompiledProgramRef>(absl::InternalError("INTERNAL: the pass pipeline failed"));
      }
      compiled->serialized_executable = "executable of " + compiled->program.name();
      cached = std::move(compiled);
    }
    return Future<compiler::CompiledProgramRef>(cached);
  }
  Future<std::string> ProgramText(const compiler::CompiledProgram& program) override {
    return Future<std::string>("text of " + program.program.name());
  }
  Future<compiler::Layout> DefaultLayout(int element_type, std::vector<int64_t> dims) override {
    compiler::Layout layout;
    for (int64_t i = static_cast<int64_t>(dims.size()) - 1; i >= 0; --i) layout.add_minor_to_major(i);
    return Future<compiler::Layout>(layout);
  }
  int child_pid() const override { return 0; }  // there is no process

 private:
  std::mutex mu_;  // guards what follows
  std::map<std::pair<std::string, std::string>, compiler::CompiledProgramRef> cache_;
};

}  // namespace openpathways::ifrt

#endif  // OPENPATHWAYS_IFRT_FAKE_COMPILER_H_
