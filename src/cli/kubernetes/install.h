// Puts OpenPathways' operator on a Kubernetes cluster and takes it off, and says what such a cluster lacks.
#ifndef OPENPATHWAYS_CLI_KUBERNETES_INSTALL_H_
#define OPENPATHWAYS_CLI_KUBERNETES_INSTALL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/commands.h"
#include "cli/kubernetes/kubectl.h"

namespace openpathways::cli {

// deploy/manifests/pathways.yaml as it was when this was built: custom resource definition, permissions, operator.
extern const char kInstallManifest[];
// Names in it.
inline constexpr char kOperatorNamespace[] = "pathways-job-system";
inline constexpr char kOperatorDeployment[] = "pathways-job-controller-manager";

// The manifest with the settings that a person has chosen. REQUIRES: options.version, which an unreleased manifest
// lacks.
absl::StatusOr<std::string> ConfiguredManifest(const std::string& manifest, const InstallOptions& options);

// FAILED_PRECONDITION, with what to do, unless there is a JobSet that the operator can work with.
absl::Status CheckJobSet(const Kubectl& kubectl);
absl::Status JobSetMissing(const Kubectl& kubectl);

// FAILED_PRECONDITION if there is an operator that does not run, or none. OK if this person may not look.
absl::Status CheckOperatorRuns(const Kubectl& kubectl);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_KUBERNETES_INSTALL_H_
