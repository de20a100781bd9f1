// Fingerprints (SHA-256) of what programs are compiled from and with.
#ifndef OPENPATHWAYS_COMPILER_DIGEST_H_
#define OPENPATHWAYS_COMPILER_DIGEST_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace openpathways::compiler {

// Of several parts: how the bytes are divided counts too.
class Digest {
 public:
  static constexpr size_t kBytes = 32;

  Digest();
  Digest& Add(absl::string_view part);
  std::string Finish();  // kBytes; once

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  void AddBytes(const void* data, size_t size);

  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// Of a binary: its build id if the linker has given it one, else of all its bytes. NOT_FOUND if it cannot be read.
absl::StatusOr<std::string> BinaryDigest(const std::string& path);

}  // namespace openpathways::compiler

#endif  // OPENPATHWAYS_COMPILER_DIGEST_H_
