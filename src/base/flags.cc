#include "base/flags.h"

#include <cstdio>
#include <cstdlib>

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
void FlagSet::Ignore(std::string name) { flags_[std::move(name)] = {Flag::Type::kIgnored, nullptr, ""}; }

absl::Status FlagSet::Assign(absl::string_view name, const Flag& flag, absl::string_view value) {
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
      spdlog::info("flag --{}={} has no meaning here and is ignored", std::string(name), std::string(value));
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
    if (text == "help") {
      PrintHelp(argv[0]);
      std::exit(0);
    }
    const size_t equals = text.find('=');
    const absl::string_view name = text.substr(0, equals);
    auto it = flags_.find(std::string(name));
    if (it == flags_.end() && equals == absl::string_view::npos && name.substr(0, 2) == "no") {
      auto negated = flags_.find(std::string(name.substr(2)));
      if (negated != flags_.end() && negated->second.type == Flag::Type::kBool) {
        RETURN_IF_ERROR(Assign(name.substr(2), negated->second, "false"));
        continue;
      }
    }
    if (it == flags_.end()) {
      unknown_.push_back(std::string(argument));
      // `--unknown value`: the value belongs to the unknown flag.
      if (equals == absl::string_view::npos && i + 1 < argc && argv[i + 1][0] != '-') unknown_.push_back(argv[++i]);
      continue;
    }
    const Flag& flag = it->second;
    if (equals != absl::string_view::npos) {
      RETURN_IF_ERROR(Assign(name, flag, StripQuotes(text.substr(equals + 1))));
    } else if (flag.type == Flag::Type::kBool) {
      RETURN_IF_ERROR(Assign(name, flag, "true"));
    } else if (i + 1 < argc && (flag.type != Flag::Type::kIgnored || argv[i + 1][0] != '-')) {
      RETURN_IF_ERROR(Assign(name, flag, StripQuotes(argv[++i])));
    } else if (flag.type == Flag::Type::kIgnored) {
      RETURN_IF_ERROR(Assign(name, flag, ""));
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
    if (flag.type != Flag::Type::kIgnored) std::printf("  --%-32s %s\n", name.c_str(), flag.help.c_str());
  }
}

}  // namespace openpathways
