#include "base/flags.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "spdlog/spdlog.h"

namespace openpathways {
namespace {

absl::string_view StripQuotes(absl::string_view value) {
  if (value.size() >= 2 && (value.front() == '\'' || value.front() == '"') && value.back() == value.front()) {
    value.remove_prefix(1);
    value.remove_suffix(1);
  }
  return value;
}

void LogIgnored(absl::string_view name, absl::string_view value, const std::string& reason) {
  if (value.empty()) {
    spdlog::info("flag --{} is ignored: {}", std::string(name), reason);
  } else {
    spdlog::info("flag --{}={} is ignored: {}", std::string(name), std::string(value), reason);
  }
}

}  // namespace

void FlagSet::Add(std::string name, std::string* target, std::string help) {
  flags_[std::move(name)] = {Flag::Type::kString, target, std::move(help)};
}
void FlagSet::Add(std::string name, int64_t* target, std::string help) {
  flags_[std::move(name)] = {Flag::Type::kInt, target, std::move(help)};
}
void FlagSet::Add(std::string name, bool* target, std::string help) {
  flags_[std::move(name)] = {Flag::Type::kBool, target, std::move(help)};
}
void FlagSet::Ignore(std::string name, std::string reason) {
  flags_[std::move(name)] = {Flag::Type::kIgnored, nullptr, std::move(reason)};
}
void FlagSet::IgnorePrefix(std::string prefix, std::string reason) {
  prefixes_.push_back({std::move(prefix), std::move(reason)});
}
void FlagSet::Collect(std::string prefix, std::vector<std::string>* target) {
  prefixes_.push_back({std::move(prefix), "", target});
}

const FlagSet::Prefix* FlagSet::FindPrefix(absl::string_view name) const {
  for (const Prefix& prefix : prefixes_) {
    if (absl::StartsWith(name, prefix.prefix)) return &prefix;
  }
  return nullptr;
}

absl::Status FlagSet::Assign(absl::string_view name, const Flag& flag, absl::string_view value) {
  if (value.empty() && (flag.type == Flag::Type::kInt || flag.type == Flag::Type::kBool)) {
    spdlog::warn("--{} has no value and is taken as not given", std::string(name));
    return absl::OkStatus();
  }
  switch (flag.type) {
    case Flag::Type::kString:
      *static_cast<std::string*>(flag.target) = std::string(value);
      return absl::OkStatus();
    case Flag::Type::kInt:
      if (absl::SimpleAtoi(value, static_cast<int64_t*>(flag.target))) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("--", name, " wants an integer, got '", value, "'"));
    case Flag::Type::kBool:
      if (absl::SimpleAtob(value, static_cast<bool*>(flag.target))) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("--", name, " wants true or false, got '", value, "'"));
    case Flag::Type::kIgnored:
      LogIgnored(name, value, flag.text);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status FlagSet::Parse(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    absl::string_view text = argument;
    if (!absl::ConsumePrefix(&text, "--") && !absl::ConsumePrefix(&text, "-")) {
      unknown_.push_back(std::string(argument));
      continue;
    }
    if (text.empty()) continue;  // "--": servers take nothing but flags
    if (text == "help") {
      PrintHelp(argv[0]);
      std::exit(0);
    }
    const size_t equals = text.find('=');
    const bool has_value = equals != absl::string_view::npos;
    const absl::string_view name = text.substr(0, equals);
    absl::string_view value = has_value ? StripQuotes(text.substr(equals + 1)) : "";
    // The next argument, if it can be a value of this one.
    const bool may_take_next = !has_value && i + 1 < argc && argv[i + 1][0] != '-';

    auto it = flags_.find(std::string(name));
    if (it == flags_.end() && !has_value && absl::StartsWith(name, "no")) {
      auto negated = flags_.find(std::string(name.substr(2)));
      if (negated != flags_.end() &&
          (negated->second.type == Flag::Type::kBool || negated->second.type == Flag::Type::kIgnored)) {
        RETURN_IF_ERROR(Assign(name.substr(2), negated->second, "false"));
        continue;
      }
    }
    if (it == flags_.end()) {
      const Prefix* prefix = FindPrefix(name);
      if (prefix == nullptr) {
        unknown_.push_back(std::string(argument));
        if (may_take_next) unknown_.push_back(argv[++i]);  // `--unknown value`: the value belongs to the flag
        continue;
      }
      if (may_take_next) value = StripQuotes(argv[++i]);
      if (prefix->target == nullptr) {
        LogIgnored(name, value, prefix->reason);
      } else {
        prefix->target->push_back(value.empty() && !has_value ? absl::StrCat("--", name)
                                                              : absl::StrCat("--", name, "=", value));
      }
      continue;
    }
    const Flag& flag = it->second;
    if (has_value) {
      RETURN_IF_ERROR(Assign(name, flag, value));
    } else if (flag.type == Flag::Type::kBool) {
      RETURN_IF_ERROR(Assign(name, flag, "true"));
    } else if (flag.type == Flag::Type::kIgnored) {
      RETURN_IF_ERROR(Assign(name, flag, may_take_next ? StripQuotes(argv[++i]) : ""));
    } else if (i + 1 < argc) {
      RETURN_IF_ERROR(Assign(name, flag, StripQuotes(argv[++i])));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " wants a value"));
    }
  }
  for (const std::string& argument : unknown_) spdlog::warn("unknown argument {} is skipped", argument);
  return absl::OkStatus();
}

void FlagSet::PrintHelp(absl::string_view program) const {
  std::printf("usage: %.*s [--flag=value ...]\n", static_cast<int>(program.size()), program.data());
  for (const auto& [name, flag] : flags_) {
    if (flag.type != Flag::Type::kIgnored) std::printf("  --%-32s %s\n", name.c_str(), flag.text.c_str());
  }
}

std::string EnvironmentValue(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : std::string(StripQuotes(absl::StripAsciiWhitespace(value)));
}

std::optional<int64_t> EnvironmentNumber(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::string value = EnvironmentValue(name);
    int64_t number = 0;
    if (value.empty()) continue;
    if (absl::SimpleAtoi(value, &number)) return number;
    spdlog::warn("{}='{}' is no number and is taken as not set", name, value);
  }
  return std::nullopt;
}

}  // namespace openpathways
