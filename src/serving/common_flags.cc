#include "serving/common_flags.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/logging.h"

namespace openpathways::serving {
namespace {

constexpr char kAllToStderr[] = "all messages go to stderr";

void LogUnused(const std::string& name, const std::string& reason) {
  const std::string value = EnvironmentValue(name);
  if (!value.empty()) spdlog::info("environment variable {}={} is not used: {}", name, value, reason);
}

}  // namespace

void AddCommonFlags(FlagSet& set, CommonFlags& flags) {
  set.Add("v", &flags.verbosity, "how much is logged: 0, 1 (debug), 2 (trace)");
  set.Add("temporary_flags_for_debugging", &flags.temporary_flags, "list a=b;;;c=d of others' switches; only logged");
  set.Ignore("gcs_scratch_location", "only the proxy keeps something there, compiled programs");
  set.Ignore("enable_metrics_collection", "there are no metrics to export yet");
  set.Ignore("enforce_kernel_ipv6_support", "IPv6 is used where the kernel has it");
  set.Ignore("vmodule", "there are no levels for single files; see --v");
  set.Ignore("alsologtostderr", kAllToStderr);
  set.Ignore("logtostderr", kAllToStderr);
  set.Ignore("stderrthreshold", kAllToStderr);
  set.IgnorePrefix("megascale_", "it is for another transport between hosts");
  set.IgnorePrefix("tpu_", "it is for the TPU runtime");
  set.IgnorePrefix("xprof_", "profiling is not supported yet");
  set.IgnorePrefix("cloud_pathways_", "colocated Python is not supported yet");
  set.IgnorePrefix("pathways_", "it belongs to older releases of Pathways' images");
}

void ApplyCommonFlags(const CommonFlags& flags) {
  if (flags.verbosity > 0 && EnvironmentValue("PATHWAYS_LOG_LEVEL").empty()) {
    spdlog::set_level(flags.verbosity == 1 ? spdlog::level::debug : spdlog::level::trace);
  }
  for (const std::string& flag : SplitTemporaryFlags(flags.temporary_flags)) {
    spdlog::info("temporary flag {} is ignored: it is about the inside of Google's servers", flag);
  }
}

void LogUnusedEnvironment(const std::vector<std::pair<std::string, std::string>>& names_and_reasons) {
  for (const auto& [name, reason] : names_and_reasons) LogUnused(name, reason);
  LogUnused("TPU_SKIP_MDS_QUERY", "no metadata server is asked anyway");
  LogUnused("PATHWAYS_UNSAFE_UNSAFE_OVERRIDE_GRPC_CREDENTIALS", "connections are plain HTTP/2 anyway");
}

std::vector<std::string> SplitTemporaryFlags(const std::string& list) {
  std::vector<std::string> flags;
  for (absl::string_view item : absl::StrSplit(list, ";;;")) {
    item = absl::StripAsciiWhitespace(item);
    if (!item.empty()) flags.push_back(std::string(item));
  }
  return flags;
}

}  // namespace openpathways::serving
