// Command manifests writes the generated files under deploy/manifests; run by 'go generate ./...'.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/openpathways/openpathways/operator/internal/manifests"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manifests REPOSITORY")
		os.Exit(2)
	}
	files, err := manifests.Generate(os.Args[1])
	for path, content := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], path), content, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
