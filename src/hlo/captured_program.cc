#include "hlo/captured_program.h"

#include <fstream>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace openpathways::hlo {

std::string ReadCapturedFile(const std::string& file) {
  std::ifstream stream(PATHWAYS_SOURCE_DIR "/src/hlo/testdata/" + file, std::ios::binary);
  EXPECT_TRUE(stream.good()) << file;
  std::stringstream content;
  content << stream.rdbuf();
  return content.str();
}

CapturedValues ReadCapturedValues(const std::string& program) {
  CapturedValues values;
  std::istringstream text(ReadCapturedFile(program + ".golden"));
  std::string kind, dims, hex;
  int index = 0, device = 0;
  CapturedArray array;
  while (text >> kind >> index >> device >> array.type >> dims >> hex) {
    array.dims.clear();
    for (absl::string_view dim : absl::StrSplit(dims, ',')) {
      int64_t size = 0;
      if (absl::SimpleAtoi(dim, &size)) array.dims.push_back(size);
    }
    array.bytes = hex == "-" ? "" : absl::HexStringToBytes(hex);
    (kind == "input" ? values.inputs : values.outputs)[device].push_back(array);
  }
  return values;
}

}  // namespace openpathways::hlo
