#include "cli/kubernetes/kubectl.h"

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "cli/child.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;

// One request: generous for a slow connection, short enough for a person who waits for an unreachable server.
constexpr char kRequestTimeout[] = "--request-timeout=20s";

// A line of the client library's own log ("E0102 15:04:05.678901 1234 memcache.go:265] ..."), which says the same as
// the message that follows it.
bool IsLogLine(absl::string_view line) {
  return line.size() > 5 && absl::StrContains("EWIF", line.substr(0, 1)) && absl::ascii_isdigit(line[1]) &&
         absl::ascii_isdigit(line[4]) && absl::StrContains(line, ".go:");
}

std::string MessageOf(absl::string_view stderr_text) {
  std::vector<absl::string_view> message, all;
  for (absl::string_view line : absl::StrSplit(stderr_text, '\n', absl::SkipWhitespace())) {
    all.push_back(line);
    if (!IsLogLine(line) && !absl::StartsWith(line, "Warning: ")) message.push_back(line);
  }
  return absl::StrJoin(message.empty() ? all : message, "\n");
}

// Letter case apart.
bool ContainsAny(absl::string_view text, std::initializer_list<absl::string_view> words) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (absl::string_view word : words) {
    if (absl::StrContains(lower, absl::AsciiStrToLower(word))) return true;
  }
  return false;
}

absl::StatusCode CodeOf(absl::string_view message) {
  if (ContainsAny(message, {"(AlreadyExists)"})) return absl::StatusCode::kAlreadyExists;
  if (ContainsAny(message,
                  {"doesn't have a resource type", "no matches for kind", "could not find the requested resource"}))
    return absl::StatusCode::kUnimplemented;
  if (ContainsAny(message, {"(NotFound)"})) return absl::StatusCode::kNotFound;
  if (ContainsAny(message, {"(Forbidden)"})) return absl::StatusCode::kPermissionDenied;
  if (ContainsAny(message, {"(Unauthorized)", "must be logged in", "provide credentials", "getting credentials"}))
    return absl::StatusCode::kUnauthenticated;
  if (ContainsAny(message, {"(Invalid)", "is invalid", "(BadRequest)", "denied the request"}))
    return absl::StatusCode::kInvalidArgument;
  if (ContainsAny(message, {"unable to connect to the server", "the connection to the server", "i/o timeout",
                            "no such host", "connection refused", "(timeout)", "deadline exceeded", "tls handshake",
                            "(ServiceUnavailable)", "no route to host"}))
    return absl::StatusCode::kUnavailable;
  return absl::StatusCode::kUnknown;
}

absl::Status ExplainFailure(const Kubectl& kubectl, const ChildResult& result) {
  std::string message = MessageOf(result.err);
  if (message.empty()) message = absl::StrCat("kubectl ended with exit code ", result.exit_code, " and no message");
  if (ContainsAny(message, {"context was not found", "does not exist"}) && ContainsAny(message, {"context"}))
    return absl::FailedPreconditionError(absl::StrCat("kubectl: ", absl::StripPrefix(message, "error: ")));
  const absl::StatusCode code = CodeOf(message);
  message = std::string(absl::StripPrefix(message, "error: "));
  if (code == absl::StatusCode::kUnavailable)
    return absl::Status(code, absl::StrCat(kubectl.Describe(), " does not answer: kubectl: ", message));
  if (code == absl::StatusCode::kPermissionDenied || code == absl::StatusCode::kUnauthenticated)
    return absl::Status(code, absl::StrCat("no permission on ", kubectl.Describe(), ": kubectl: ", message));
  return absl::Status(code, absl::StrCat("kubectl: ", message));
}

absl::StatusOr<json> ParseJson(const std::string& text) {
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    return absl::InternalError(absl::StrCat("kubectl printed something else than JSON: ", text.substr(0, 200)));
  }
  return parsed;
}

// `kubectl config ARGUMENTS`, which talks to no cluster.
absl::StatusOr<std::string> RunConfig(const std::string& kubeconfig, std::vector<std::string> arguments) {
  Kubectl::Target target;
  target.kubeconfig = kubeconfig;
  arguments.insert(arguments.begin(), "config");
  return Kubectl(target, [] { return false; }).Run(arguments);
}

absl::Status ExplainMissing(const absl::Status& status) {
  if (absl::IsCancelled(status)) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(status.message(),
                   ": kubectl has to be on PATH to work with Kubernetes; it is part of every Kubernetes "
                   "release (https://kubernetes.io/docs/tasks/tools/)"));
}

}  // namespace

std::string Kubectl::Describe() const {
  return target_.context.empty() ? "the current cluster of kubectl" : absl::StrCat("cluster ", target_.context);
}

std::string Kubectl::Flags() const {
  std::string flags;
  if (!target_.context.empty()) absl::StrAppend(&flags, " --cluster=", target_.context);
  if (!target_.kubeconfig.empty()) absl::StrAppend(&flags, " --kubeconfig=", target_.kubeconfig);
  if (!target_.name_space.empty()) absl::StrAppend(&flags, " --namespace=", target_.name_space);
  return flags;
}

std::vector<std::string> Kubectl::CommandLine(const std::vector<std::string>& arguments) const {
  std::vector<std::string> argv = {"kubectl"};
  if (!target_.kubeconfig.empty()) argv.push_back(absl::StrCat("--kubeconfig=", target_.kubeconfig));
  if (!target_.context.empty()) argv.push_back(absl::StrCat("--context=", target_.context));
  if (!target_.name_space.empty()) argv.push_back(absl::StrCat("--namespace=", target_.name_space));
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

absl::StatusOr<std::string> Kubectl::Run(const std::vector<std::string>& arguments, absl::string_view input) const {
  absl::StatusOr<ChildResult> result = RunChild(CommandLine(arguments), input, cancelled_);
  if (!result.ok()) return ExplainMissing(result.status());
  if (result->exit_code != 0) return ExplainFailure(*this, *result);
  return std::move(result->out);
}

absl::StatusOr<json> Kubectl::RunJson(std::vector<std::string> arguments, absl::string_view input) const {
  arguments.insert(arguments.end(), {"-o", "json"});
  ASSIGN_OR_RETURN(const std::string text, Run(arguments, input));
  return ParseJson(text);
}

absl::StatusOr<json> Kubectl::Get(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), "get");
  arguments.push_back(kRequestTimeout);
  return RunJson(std::move(arguments));
}

absl::StatusOr<std::optional<json>> Kubectl::Find(const std::string& type, const std::string& name) const {
  ASSIGN_OR_RETURN(const std::string text,
                   Run({"get", type, name, "--ignore-not-found", "-o", "json", kRequestTimeout}));
  if (absl::StripAsciiWhitespace(text).empty()) return std::optional<json>();
  ASSIGN_OR_RETURN(json object, ParseJson(text));
  return std::optional<json>(std::move(object));
}

absl::Status NoSuchWorkload(const Kubectl& kubectl, const std::string& workload) {
  const std::string& name_space = kubectl.target().name_space;
  return absl::NotFoundError(absl::StrCat("there is no workload called ", workload, " on ", kubectl.Describe(),
                                          name_space.empty() ? "" : absl::StrCat(" in namespace ", name_space)));
}

absl::StatusOr<std::vector<std::string>> ListContexts(const std::string& kubeconfig) {
  ASSIGN_OR_RETURN(const std::string text, RunConfig(kubeconfig, {"get-contexts", "-o", "name"}));
  return std::vector<std::string>(absl::StrSplit(text, '\n', absl::SkipWhitespace()));
}

absl::StatusOr<std::string> CurrentContext(const std::string& kubeconfig) {
  ASSIGN_OR_RETURN(const std::string text, RunConfig(kubeconfig, {"current-context"}));
  return std::string(absl::StripAsciiWhitespace(text));
}

std::string StringAt(const json& object, const std::string& pointer) {
  const json::json_pointer path(pointer);
  return object.contains(path) && object.at(path).is_string() ? object.at(path).get<std::string>() : "";
}

int64_t IntAt(const json& object, const std::string& pointer) {
  const json::json_pointer path(pointer);
  return object.contains(path) && object.at(path).is_number() ? object.at(path).get<int64_t>() : 0;
}

const json& ListAt(const json& object, const std::string& pointer) {
  static const json& empty = *new json(json::array());
  const json::json_pointer path(pointer);
  return object.contains(path) && object.at(path).is_array() ? object.at(path) : empty;
}

}  // namespace openpathways::cli
