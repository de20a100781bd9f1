#include "hlo/cost_analysis.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "hlo/captured_program.h"

namespace openpathways::hlo {
namespace {

std::map<std::string, double> Expected(const std::string& program) {
  std::map<std::string, double> costs;
  std::istringstream text(ReadCapturedFile("costs/" + program + ".costs"));
  double value = 0;
  std::string name;
  while (text >> value && text.get() == '\t' && std::getline(text, name)) costs[name] = value;
  EXPECT_FALSE(costs.empty());
  return costs;
}

class CostAnalysisTest : public testing::TestWithParam<const char*> {};

// Modules with the costs that XLA computes for them: see testdata/costs/generate.py.
TEST_P(CostAnalysisTest, CountsAsXlaDoes) {
  HloModuleProto module;
  ASSERT_TRUE(module.ParseFromString(ReadCapturedFile(std::string("costs/") + GetParam() + ".hlo")));
  const std::map<std::string, double> expected = Expected(GetParam()), costs = AnalyzeCosts(module);
  for (const auto& [name, value] : expected) {
    auto found = costs.find(name);
    EXPECT_TRUE(found != costs.end() && std::abs(found->second - value) <= 1e-6 * value)
        << name << " " << (found == costs.end() ? 0 : found->second) << " instead of " << value;
  }
  for (const auto& [name, value] : costs) EXPECT_TRUE(expected.contains(name)) << name << " " << value;
}

INSTANTIATE_TEST_SUITE_P(Modules, CostAnalysisTest,
                         testing::Values("batched_dot", "branches", "convolution", "fourier", "gather", "layer", "loop",
                                         "normalized", "partitioned", "pool", "scatter", "sort", "update_slice"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CostAnalysisTest, AnEmptyModuleCostsNothing) { EXPECT_TRUE(AnalyzeCosts(HloModuleProto()).empty()); }

}  // namespace
}  // namespace openpathways::hlo
