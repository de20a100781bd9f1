// Writes JSON as the block-style YAML that people read and edit.
#ifndef OPENPATHWAYS_CLI_KUBERNETES_YAML_H_
#define OPENPATHWAYS_CLI_KUBERNETES_YAML_H_

#include <string>

#include "nlohmann/json.hpp"

namespace openpathways::cli {

// Keys keep their order. Strings that a YAML reader could take for something else, or that have more than plain
// characters, are quoted as in JSON, which YAML allows.
std::string ToYaml(const nlohmann::ordered_json& value);

}  // namespace openpathways::cli

#endif  // OPENPATHWAYS_CLI_KUBERNETES_YAML_H_
