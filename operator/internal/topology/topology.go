// Package topology says which slices exist and how many hosts they have. The rules are the resource manager's
// (src/topology in C++), narrowed to the machine types that a PathwaysJob can name; the API server checks the same rules
// before an object is stored (api/v1).
package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/openpathways/openpathways/operator/api/v1"
)

// Machine is a machine type and the slices that can be made of it.
type Machine struct {
	Type           v1.MachineType
	Accelerator    string // GKE's label cloud.google.com/gke-tpu-accelerator
	InstancePrefix string // in --instance_type
	ChipsPerHost   int32

	flat     []string // two-dimensional generations: all topologies
	maxCubes int32    // three-dimensional ones: the largest slice, in cubes of 4x4x4 chips
}

// Slice is a legal slice.
type Slice struct {
	Machine  Machine
	Topology string
	Chips    int32
	Hosts    int32
}

var partialCubes = []string{"2x2x1", "2x2x2", "2x2x4", "2x4x4"}

// Machines returns all machine types.
func Machines() []Machine {
	multiHost := []string{"2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"}
	return []Machine{
		{Type: "ct4p-hightpu-4t", Accelerator: "tpu-v4-podslice", InstancePrefix: "tpuv4", ChipsPerHost: 4, maxCubes: 64},
		{Type: "ct5lp-hightpu-4t", Accelerator: "tpu-v5-lite-podslice", InstancePrefix: "tpuv5e", ChipsPerHost: 4, flat: multiHost},
		{Type: "ct5lp-hightpu-8t", Accelerator: "tpu-v5-lite-podslice", InstancePrefix: "tpuv5e1t", ChipsPerHost: 8, flat: []string{"2x4"}},
		{Type: "ct5p-hightpu-4t", Accelerator: "tpu-v5p-slice", InstancePrefix: "tpuv5", ChipsPerHost: 4, maxCubes: 140},
		{Type: "ct6e-standard-4t", Accelerator: "tpu-v6e-slice", InstancePrefix: "tpuv6e", ChipsPerHost: 4, flat: append([]string{"1x1"}, multiHost...)},
		{Type: "ct6e-standard-8t", Accelerator: "tpu-v6e-slice", InstancePrefix: "tpuv6e1t", ChipsPerHost: 8, flat: []string{"2x4"}},
		{Type: "tpu7x-standard-4t", Accelerator: "tpu7x", InstancePrefix: "tpu7x", ChipsPerHost: 4, maxCubes: 144},
	}
}

// Parse returns the slice of that machine type and topology, or an error that lists what is possible.
func Parse(machineType v1.MachineType, topology string) (Slice, error) {
	machines := Machines()
	i := slices.IndexFunc(machines, func(m Machine) bool { return m.Type == machineType })
	if i < 0 {
		var types []string
		for _, m := range machines {
			types = append(types, string(m.Type))
		}
		return Slice{}, fmt.Errorf("%q is not a known machine type: possible are %s", machineType, strings.Join(types, ", "))
	}
	machine := machines[i]
	if !machine.allows(topology) {
		return Slice{}, fmt.Errorf("%q is not a topology of %s: possible are %s", topology, machineType, machine.describe())
	}
	chips := int32(1)
	for _, side := range sides(topology) {
		chips *= side
	}
	return Slice{Machine: machine, Topology: topology, Chips: chips, Hosts: max(1, chips/machine.ChipsPerHost)}, nil
}

// InstanceType is the slice as --instance_type names it, such as tpuv5:2x2x2.
func (s Slice) InstanceType() string { return s.Machine.InstancePrefix + ":" + s.Topology }

// All returns all legal slices of the machine type.
func (m Machine) All() []Slice {
	topologies := m.flat
	if m.maxCubes > 0 {
		topologies = slices.Clone(partialCubes)
		for a := int32(1); a*a*a <= m.maxCubes; a++ {
			for b := a; a*b*b <= m.maxCubes; b++ {
				for c := b; a*b*c <= m.maxCubes; c++ {
					topologies = append(topologies, fmt.Sprintf("%dx%dx%d", 4*a, 4*b, 4*c))
				}
			}
		}
	}
	var all []Slice
	for _, topology := range topologies {
		slice, err := Parse(m.Type, topology)
		if err != nil {
			panic(err) // All and allows contradict each other
		}
		all = append(all, slice)
	}
	return all
}

func (m Machine) allows(topology string) bool {
	if m.maxCubes == 0 {
		return slices.Contains(m.flat, topology)
	}
	if slices.Contains(partialCubes, topology) {
		return true
	}
	dims := sides(topology)
	if len(dims) != 3 || dims[0] > dims[1] || dims[1] > dims[2] {
		return false
	}
	chips := int64(1)
	for _, side := range dims {
		if side%4 != 0 {
			return false
		}
		chips *= int64(side)
	}
	return chips <= 64*int64(m.maxCubes)
}

func (m Machine) describe() string {
	if m.maxCubes == 0 {
		return strings.Join(m.flat, ", ")
	}
	return fmt.Sprintf("%s, and every AxBxC of multiples of 4 with A <= B <= C and at most %d chips",
		strings.Join(partialCubes, ", "), 64*m.maxCubes)
}

// sides returns the numbers of "AxBxC"; nil if it is not of that form. Each has three digits at most, so that products
// cannot overflow.
func sides(topology string) []int32 {
	var dims []int32
	for part := range strings.SplitSeq(topology, "x") {
		side, err := strconv.ParseUint(part, 10, 31)
		if err != nil || side == 0 || side > 999 || strconv.FormatUint(side, 10) != part {
			return nil
		}
		dims = append(dims, int32(side))
	}
	return dims
}
