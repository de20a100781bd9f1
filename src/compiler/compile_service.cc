#include "compiler/compile_service.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compiler/compile_errors.h"
#include "compiler/compile_options.h"
#include "compiler/text_dump.h"
#include "hlo/collective_call.h"
#include "hlo/cost_analysis.h"
#include "hlo/hlo.pb.h"
#include "hlo/numeric_call.h"
#include "hlo/program.h"
#include "hlo/rewrite_collectives.h"
#include "hlo/rewrite_numerics.h"
#include "pjrt/compile_options.h"
#include "pjrt/element_type.h"

namespace openpathways::compiler {
namespace {

constexpr size_t kMaxClients = 4;

// The compile that this thread is in. The plugin shows the module on the thread that called it.
struct RunningCompile {
  bool rewrite = true;
  std::map<std::string, double> costs;  // of the module before it is rewritten
};
thread_local RunningCompile* running_compile = nullptr;

class ScopedCompile {
 public:
  explicit ScopedCompile(RunningCompile* compile) : outer_(std::exchange(running_compile, compile)) {}
  ~ScopedCompile() { running_compile = outer_; }

 private:
  RunningCompile* const outer_;
};

absl::StatusOr<std::optional<std::string>> RewriteModule(absl::string_view serialized) {
  if (running_compile != nullptr && !running_compile->rewrite) return std::nullopt;
  hlo::HloModuleProto module;
  if (!module.ParseFromArray(serialized.data(), static_cast<int>(serialized.size()))) {
    return absl::InternalError("the plugin showed a module that cannot be read");
  }
  if (running_compile != nullptr) running_compile->costs = hlo::AnalyzeCosts(module);
  ASSIGN_OR_RETURN(const bool has_numerics, hlo::RewriteNumerics(module));
  ASSIGN_OR_RETURN(const bool has_collectives, hlo::RewriteCollectives(module));
  if (!has_numerics && !has_collectives) return std::nullopt;
  return module.SerializeAsString();
}

// The device packs elements of less than a byte.
int64_t PackedBits(int element_type) {
  const absl::StatusOr<int> bits = pjrt::ElementBits(element_type);
  return bits.ok() && *bits > 0 && *bits < 8 ? *bits : 0;
}

// REPLICATED has no bytes at all; with its type written out it differs from no sharding.
std::string Known(const std::string& sharding) { return sharding.empty() ? std::string("\x08\x00", 2) : sharding; }

void FillArray(const hlo::ArrayShape& shape, Array& array) {
  array.set_element_type(shape.element_type);
  array.mutable_dims()->Assign(shape.dimensions.begin(), shape.dimensions.end());
  array.mutable_layout()->mutable_minor_to_major()->Assign(shape.minor_to_major.begin(), shape.minor_to_major.end());
  array.mutable_layout()->set_element_size_in_bits(PackedBits(shape.element_type));
}

absl::Status FillShape(const pjrt::LoadedExecutable& executable, Program& program) {
  ASSIGN_OR_RETURN(const std::string hlo_module, executable.OptimizedHlo());
  ASSIGN_OR_RETURN(const hlo::ProgramShape shape, hlo::ReadProgramShape(hlo_module));
  for (size_t i = 0; i < shape.parameters.size(); ++i) {
    FillArray(shape.parameters[i], *program.add_parameters());
    if (!shape.parameter_shardings.empty())
      program.mutable_parameters(i)->set_sharding(Known(shape.parameter_shardings[i]));
  }
  const pjrt::ExecutableInfo& info = executable.info();
  for (size_t i = 0; i < shape.results.size(); ++i) {
    FillArray(shape.results[i], *program.add_results());
    if (!shape.result_shardings.empty()) program.mutable_results(i)->set_sharding(Known(shape.result_shardings[i]));
    if (i < info.output_memory_kinds.size()) program.mutable_results(i)->set_memory_kind(info.output_memory_kinds[i]);
  }
  program.set_straight_line(shape.straight_line);
  program.set_few_steps(shape.few_steps);
  program.mutable_donated_parameters()->Assign(shape.donated_parameters.begin(), shape.donated_parameters.end());
  return absl::OkStatus();
}

absl::StatusOr<Program> Describe(const pjrt::LoadedExecutable& executable) {
  Program program;
  const pjrt::ExecutableInfo& info = executable.info();
  program.set_name(info.name);
  program.set_num_replicas(info.num_replicas);
  program.set_num_partitions(info.num_partitions);
  program.set_fingerprint(info.fingerprint);
  program.set_generated_code_size(info.generated_code_size);
  RETURN_IF_ERROR(FillShape(executable, program));
  // Optional for a plugin.
  if (auto stats = executable.MemoryStats(); stats.ok()) {
    program.mutable_memory_stats()->insert(stats->begin(), stats->end());
  }
  return program;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompileService>> CompileService::Create(const std::string& plugin_path) {
  ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Plugin> plugin, pjrt::Plugin::Load(plugin_path));
  RETURN_IF_ERROR(plugin->RegisterHloTransform("openpathways.rewrite", RewriteModule));
  // The plugin refuses to compile calls that it has no handler for.
  std::vector<std::string> targets(hlo::kNumericTargets.begin(), hlo::kNumericTargets.end());
  targets.push_back(hlo::kCollectiveTarget);
  for (const std::string& target : targets) {
    RETURN_IF_ERROR(plugin->RegisterAsyncHandler(target, [](pjrt::FfiCall call) {
      call.Finish(absl::FailedPreconditionError("programs are not run in the compiler process"));
    }));
  }
  return std::unique_ptr<CompileService>(new CompileService(std::move(plugin)));
}

absl::StatusOr<CompiledProgram> CompileService::Compile(absl::string_view program, const std::string& compile_options) {
  ASSIGN_OR_RETURN(const pjrt::ProgramSize size, pjrt::ReadProgramSize(compile_options));
  RETURN_IF_ERROR(CheckCompilable(program, compile_options));
  ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Client> client, ClientFor(size.num_replicas * size.num_partitions));
  RunningCompile running;
  ScopedCompile scope(&running);
  absl::StatusOr<std::unique_ptr<pjrt::LoadedExecutable>> executable_or = client->Compile(program, compile_options);
  if (!executable_or.ok()) return ExplainCompileError(executable_or.status());
  const std::unique_ptr<pjrt::LoadedExecutable> executable = *std::move(executable_or);
  CompiledProgram compiled;
  ASSIGN_OR_RETURN(compiled.program, Describe(*executable));
  // A plugin that counts for itself knows its devices best.
  absl::StatusOr<std::map<std::string, double>> costs = executable->CostAnalysis();
  if (!costs.ok()) costs = std::move(running.costs);
  compiled.program.mutable_cost_analysis()->insert(costs->begin(), costs->end());
  ASSIGN_OR_RETURN(compiled.serialized_executable, executable->Serialize());
  return compiled;
}

absl::StatusOr<std::string> CompileService::ProgramText(absl::string_view program, const std::string& compile_options) {
  ASSIGN_OR_RETURN(const pjrt::ProgramSize size, pjrt::ReadProgramSize(compile_options));
  ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Client> client, ClientFor(size.num_replicas * size.num_partitions));
  ASSIGN_OR_RETURN(const std::string options, WithTextDump(compile_options));
  RunningCompile running;
  running.rewrite = false;
  ScopedCompile scope(&running);
  absl::MutexLock lock(&text_mu_);
  ASSIGN_OR_RETURN(std::unique_ptr<CaughtOutput> output, CaughtOutput::Begin());
  const absl::Status compiled = client->Compile(program, options).status();
  ASSIGN_OR_RETURN(const std::string dump, output->End());
  absl::StatusOr<std::string> text = FindOptimizedText(dump);
  // What runs as a call of ours has no code in the plugin; by then the text has been written.
  if (!text.ok() && !compiled.ok()) return compiled;
  return text;
}

absl::StatusOr<Layout> CompileService::DefaultLayout(int element_type, absl::Span<const int64_t> dims) {
  ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Client> client, ClientFor(1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> minor_to_major, client->DefaultLayout(element_type, dims));
  Layout layout;
  layout.mutable_minor_to_major()->Assign(minor_to_major.begin(), minor_to_major.end());
  layout.set_element_size_in_bits(PackedBits(element_type));
  return layout;
}

absl::StatusOr<std::shared_ptr<pjrt::Client>> CompileService::ClientFor(int64_t num_devices) {
  std::shared_ptr<pjrt::Client> evicted;  // destroyed without the lock
  absl::MutexLock lock(&mu_);
  for (auto it = clients_.begin(); it != clients_.end(); ++it) {
    if (it->first != num_devices) continue;
    clients_.splice(clients_.begin(), clients_, it);
    return it->second;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Client> client,
                   plugin_->CreateClient({{"cpu_device_count", num_devices}, {"asynchronous", false}}));
  clients_.emplace_front(num_devices, client);
  if (clients_.size() > kMaxClients) {
    evicted = std::move(clients_.back().second);
    clients_.pop_back();
  }
  return client;
}

}  // namespace openpathways::compiler
