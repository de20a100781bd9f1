// For tests: the programs in testdata/, as JAX lowered them, with inputs and outputs that it computed. See generate.py.
#ifndef OPENPATHWAYS_HLO_CAPTURED_PROGRAM_H_
#define OPENPATHWAYS_HLO_CAPTURED_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

namespace openpathways::hlo {

// The number of devices of every captured program.
inline constexpr int kCapturedDevices = 4;

// An array of one device.
struct CapturedArray {
  int type = 0;  // number of xla.PrimitiveType
  std::vector<int64_t> dims;
  std::string bytes;
};
using CapturedArrays = std::vector<std::vector<CapturedArray>>;  // [device][index]

struct CapturedValues {
  CapturedArrays inputs = CapturedArrays(kCapturedDevices);
  CapturedArrays outputs = CapturedArrays(kCapturedDevices);
};

// The bytes of testdata/`file`; the test fails if there is none.
std::string ReadCapturedFile(const std::string& file);

CapturedValues ReadCapturedValues(const std::string& program);

}  // namespace openpathways::hlo

#endif  // OPENPATHWAYS_HLO_CAPTURED_PROGRAM_H_
