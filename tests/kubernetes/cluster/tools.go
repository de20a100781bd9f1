//go:build tools

package main

import _ "sigs.k8s.io/jobset" // built beside this program, from the same modules
