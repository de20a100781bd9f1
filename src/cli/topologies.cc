#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/commands.h"
#include "nlohmann/json.hpp"
#include "topology/machine_type.h"

namespace openpathways::cli {
namespace {

using nlohmann::json;
using topology::MachineType;
using topology::SliceTopology;

struct Row {
  MachineType machine;
  SliceTopology slice;
};

absl::StatusOr<std::vector<Row>> Rows(const TopologiesOptions& options) {
  std::vector<Row> rows;
  if (options.tpu_type.has_value()) {
    absl::StatusOr<SliceTopology> slice = SliceTopology::Parse(*options.tpu_type);
    if (!slice.ok()) return AnnotateStatus(slice.status(), "--tpu-type");
    ASSIGN_OR_RETURN(MachineType machine, topology::MachineTypeOf(*slice));
    rows.push_back({std::move(machine), *slice});
    return rows;
  }
  for (const MachineType& machine : topology::MachineTypes()) {
    for (const SliceTopology& slice : topology::SlicesOf(machine)) rows.push_back({machine, slice});
  }
  return rows;
}

void PrintJson(const std::vector<Row>& rows) {
  json list = json::array();
  for (const Row& row : rows) {
    list.push_back({{"machine_type", row.machine.name},
                    {"accelerator", row.machine.accelerator},
                    {"instance_type", row.slice.instance_type()},
                    {"accelerator_type", row.slice.accelerator_type()},
                    {"topology", row.slice.topology()},
                    {"chips", row.slice.num_chips()},
                    {"chips_per_host", row.slice.chips_per_host()},
                    {"hosts", row.slice.num_hosts()},
                    {"devices", row.slice.num_devices()}});
  }
  std::printf("%s\n", list.dump(2).c_str());
}

void PrintText(const std::vector<Row>& rows) {
  std::printf("%-18s %-21s %-9s %-13s %-16s %6s %6s %8s\n", "MACHINE TYPE", "ACCELERATOR", "TOPOLOGY", "--tpu-type",
              "INSTANCE TYPE", "CHIPS", "HOSTS", "DEVICES");
  for (const Row& row : rows) {
    // A name by size means the most cubic shape; of the others the shape has to be said.
    const absl::StatusOr<SliceTopology> by_size = SliceTopology::Parse(row.slice.accelerator_type());
    const bool by_size_is_enough = by_size.ok() && *by_size == row.slice;
    std::printf("%-18s %-21s %-9s %-13s %-16s %6d %6d %8d\n", row.machine.name.c_str(), row.machine.accelerator.c_str(),
                row.slice.topology().c_str(), by_size_is_enough ? row.slice.accelerator_type().c_str() : "-",
                row.slice.instance_type().c_str(), row.slice.num_chips(), row.slice.num_hosts(),
                row.slice.num_devices());
  }
}

}  // namespace

int Topologies(const TopologiesOptions& options) {
  const absl::StatusOr<std::vector<Row>> rows = Rows(options);
  if (!rows.ok()) return PrintError(rows.status());
  options.json ? PrintJson(*rows) : PrintText(*rows);
  return 0;
}

}  // namespace openpathways::cli
