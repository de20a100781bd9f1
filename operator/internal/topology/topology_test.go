package topology

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
)

var update = flag.Bool("update", false, "write the files under testdata anew")

func TestParse(t *testing.T) {
	for _, test := range []struct {
		machine, topology, instance string
		chips, hosts                int32
	}{
		{"ct5p-hightpu-4t", "2x2x2", "tpuv5:2x2x2", 8, 2},
		{"ct5p-hightpu-4t", "2x2x1", "tpuv5:2x2x1", 4, 1},
		{"ct5p-hightpu-4t", "16x20x28", "tpuv5:16x20x28", 8960, 2240},
		{"ct4p-hightpu-4t", "8x16x16", "tpuv4:8x16x16", 2048, 512},
		{"ct5lp-hightpu-4t", "4x4", "tpuv5e:4x4", 16, 4},
		{"ct5lp-hightpu-8t", "2x4", "tpuv5e1t:2x4", 8, 1},
		{"ct6e-standard-4t", "2x4", "tpuv6e:2x4", 8, 2},
		{"ct6e-standard-4t", "1x1", "tpuv6e:1x1", 1, 1},
		{"ct6e-standard-8t", "2x4", "tpuv6e1t:2x4", 8, 1},
		{"tpu7x-standard-4t", "16x24x24", "tpu7x:16x24x24", 9216, 2304},
	} {
		slice, err := Parse(v1.MachineType(test.machine), test.topology)
		if err != nil {
			t.Error(err)
			continue
		}
		if slice.InstanceType() != test.instance || slice.Chips != test.chips || slice.Hosts != test.hosts {
			t.Errorf("%s %s: %s, %d chips, %d hosts", test.machine, test.topology, slice.InstanceType(), slice.Chips, slice.Hosts)
		}
	}
}

func TestParseListsWhatIsPossible(t *testing.T) {
	for _, test := range []struct{ machine, topology, want string }{
		{"ct5p-hightpu-4t", "3x3x3", "2x2x1, 2x2x2, 2x2x4, 2x4x4, and every AxBxC of multiples of 4 with A <= B <= C and at most 8960 chips"},
		{"ct5lp-hightpu-4t", "1x1", "possible are 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16"},
		{"ct6e-standard-8t", "4x4", "possible are 2x4"},
		{"v5p", "2x2x2", "ct5p-hightpu-4t"},
	} {
		if _, err := Parse(v1.MachineType(test.machine), test.topology); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: %v", test.machine, test.topology, err)
		}
	}
	for _, topology := range []string{"", "x", "2x2", "2x2x2x2", "4x8x4", "4x4x6", "04x4x4", "+4x4x4", "4x4x4 ", "0x0x0", "-4x-4x4",
		"4x4x999999999999", "996x996x996", "4x4x564", "2x2x8"} {
		if _, err := Parse("ct5p-hightpu-4t", topology); err == nil {
			t.Errorf("%q should be refused", topology)
		}
	}
}

// testdata/slices.csv is read by the C++ side's test too (src/topology/slice_topology_test.cc), so the two cannot drift
// apart: the resource manager must take each of these.
func TestSlicesAreThoseOfTheSharedList(t *testing.T) {
	var lines strings.Builder
	lines.WriteString("machine_type,topology,instance_type,chips_per_host,hosts\n")
	for _, machine := range Machines() {
		for _, slice := range machine.All() {
			// A slice smaller than its host has but its own chips.
			fmt.Fprintf(&lines, "%s,%s,%s,%d,%d\n", machine.Type, slice.Topology, slice.InstanceType(), slice.Chips/slice.Hosts, slice.Hosts)
		}
	}
	const file = "testdata/slices.csv"
	if *update {
		if err := os.WriteFile(file, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if lines.String() != string(want) {
		t.Errorf("%s is not what the rules give; if they are right, run 'go test ./internal/topology -update' and the C++ tests", file)
	}
}
