package topology

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
)

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

// The resource manager must take each slice that the operator asks it for, and the operator must offer each that it
// knows: 'pathways topologies' prints the C++ side's table.
func TestSlicesAreThoseOfTheResourceManager(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: needs the built command line")
	}
	program := os.Getenv("PATHWAYS_BIN")
	if program == "" {
		program = "../../../bin/pathways"
	}
	output, err := exec.Command(program, "topologies", "--json").Output()
	if err != nil {
		t.Fatalf("%s topologies --json: %v; build it (./dev build), name it with PATHWAYS_BIN, or pass -short", program, err)
	}
	type row struct {
		Machine     v1.MachineType `json:"machine_type"`
		Accelerator string         `json:"accelerator"`
		Topology    string         `json:"topology"`
		Instance    string         `json:"instance_type"`
		Chips       int32          `json:"chips"`
		Hosts       int32          `json:"hosts"`
	}
	var want []row
	if err := json.Unmarshal(output, &want); err != nil {
		t.Fatal(err)
	}
	var got []row
	for _, machine := range Machines() {
		for _, slice := range machine.All() {
			got = append(got, row{machine.Type, machine.Accelerator, slice.Topology, slice.InstanceType(), slice.Chips, slice.Hosts})
		}
	}
	if len(want) < 1000 {
		t.Errorf("only %d slices", len(want))
	}
	for _, r := range want {
		if !slices.Contains(got, r) {
			t.Errorf("the resource manager has %+v, the operator does not", r)
		}
	}
	for _, r := range got {
		if !slices.Contains(want, r) {
			t.Errorf("the operator has %+v, the resource manager does not", r)
		}
	}
}
