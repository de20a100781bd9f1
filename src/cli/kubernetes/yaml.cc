#include "cli/kubernetes/yaml.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace openpathways::cli {
namespace {

using nlohmann::ordered_json;

// "2x2x2": no reader takes that for a number.
bool IsTopology(const std::string& text) {
  const auto legal = [](char c) { return absl::ascii_isdigit(c) || c == 'x'; };
  return text[0] != '0' && absl::ascii_isdigit(text[0]) && text.find('x') != std::string::npos &&
         std::all_of(text.begin(), text.end(), legal);
}

// Whether every YAML 1.1 and 1.2 reader takes it for this very string.
bool IsPlain(const std::string& text) {
  const auto plain = [](char c) { return absl::ascii_isalnum(c) || absl::StrContains("._-/:=", std::string(1, c)); };
  if (text.empty()) return false;
  if (IsTopology(text)) return true;
  if (!absl::ascii_isalpha(text[0]) || text.back() == ':' || !std::all_of(text.begin(), text.end(), plain))
    return false;
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* word : {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}) {
    if (lower == word) return false;
  }
  return true;
}

std::string Scalar(const ordered_json& value) {
  if (value.is_string() && IsPlain(value.get_ref<const std::string&>())) return value.get<std::string>();
  return value.dump();  // empty lists and objects, too: "[]", "{}"
}

bool IsBlock(const ordered_json& value) { return value.is_structured() && !value.empty(); }

void Append(const ordered_json& value, const std::string& indent, std::string* out) {
  // An item's first line follows the "- " of the line it is on.
  const auto append_item = [&](const ordered_json& item) {
    std::string text;
    Append(item, indent + "  ", &text);
    absl::StrAppend(out, indent, "- ", text.substr(indent.size() + 2));
  };
  if (value.is_array()) {
    for (const ordered_json& item : value) {
      if (IsBlock(item)) {
        append_item(item);
      } else {
        absl::StrAppend(out, indent, "- ", Scalar(item), "\n");
      }
    }
    return;
  }
  for (const auto& [key, field] : value.items()) {
    absl::StrAppend(out, indent, Scalar(key), ":");
    if (IsBlock(field)) {
      absl::StrAppend(out, "\n");
      Append(field, indent + "  ", out);
    } else {
      absl::StrAppend(out, " ", Scalar(field), "\n");
    }
  }
}

}  // namespace

std::string ToYaml(const ordered_json& value) {
  if (!IsBlock(value)) return absl::StrCat(Scalar(value), "\n");
  std::string out;
  Append(value, "", &out);
  return out;
}

}  // namespace openpathways::cli
