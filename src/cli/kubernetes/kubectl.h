// Talks to a Kubernetes cluster through the `kubectl` on PATH, JSON in and out: what a person has set up for it
// (contexts, credential plugins, proxies) works here, too.
#ifndef OPENPATHWAYS_CLI_KUBERNETES_KUBECTL_H_
#define OPENPATHWAYS_CLI_KUBERNETES_KUBECTL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace openpathways::cli {

// Immutable but for what it is told at the start; thread-safe.
class Kubectl {
 public:
  struct Target {  // empty: as kubectl finds it
    std::string kubeconfig;
    std::string context;
    std::string name_space;
  };
  // `cancelled` is asked several times a second while kubectl runs: see RunChild.
  Kubectl(Target target, std::function<bool()> cancelled)
      : target_(std::move(target)), cancelled_(std::move(cancelled)) {}
  Kubectl With(std::function<bool()> cancelled) const { return Kubectl(target_, std::move(cancelled)); }

  const Target& target() const { return target_; }
  // `cluster C` or `the current cluster of kubectl`, for messages.
  std::string Describe() const;

  // " --cluster=C --namespace=N" as far as they are set: our own flags for it, for commands that are suggested.
  std::string Flags() const;

  // The whole command line, for programs that the caller runs itself.
  std::vector<std::string> CommandLine(const std::vector<std::string>& arguments) const;

  // What it prints. Errors carry kubectl's own message; NOT_FOUND, ALREADY_EXISTS, INVALID_ARGUMENT, PERMISSION_DENIED
  // and UNAUTHENTICATED are the server's answer, UNIMPLEMENTED means that the server does not know such a resource
  // type, UNAVAILABLE that it did not answer, FAILED_PRECONDITION that there is no kubectl or no cluster is set up for
  // it.
  absl::StatusOr<std::string> Run(const std::vector<std::string>& arguments, absl::string_view input = "") const;

  // The same with `-o json`, parsed.
  absl::StatusOr<nlohmann::json> RunJson(std::vector<std::string> arguments, absl::string_view input = "") const;

  // `kubectl get ARGUMENTS`.
  absl::StatusOr<nlohmann::json> Get(std::vector<std::string> arguments) const;
  // The same for one object by name; nothing if there is none.
  absl::StatusOr<std::optional<nlohmann::json>> Find(const std::string& type, const std::string& name) const;

 private:
  Target target_;
  std::function<bool()> cancelled_;
};

// NOT_FOUND, and where it was looked for.
absl::Status NoSuchWorkload(const Kubectl& kubectl, const std::string& workload);

// Names of all contexts that kubectl knows, and of the current one (an error if there is none).
absl::StatusOr<std::vector<std::string>> ListContexts(const std::string& kubeconfig);
absl::StatusOr<std::string> CurrentContext(const std::string& kubeconfig);

// A field of an object by JSON pointer ("/metadata/name"); empty, or 0, if it is not there.
std::string StringAt(const nlohmann::json& object, const std::string& pointer);
int64_t IntAt(const nlohmann::json& object, const std::string& pointer);
// An empty list if it is not there.
const nlohmann::json& ListAt(const nlohmann::json& object, const std::string& pointer);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_KUBERNETES_KUBECTL_H_
