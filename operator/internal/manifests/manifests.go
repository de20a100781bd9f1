// Package manifests makes the files under deploy/manifests: the CustomResourceDefinition from the Go types, and the one
// file that installs everything from its parts.
package manifests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const crdFile = "pathways-job.pathways.domain_pathwaysjobs.yaml" // as controller-gen names it

// Paths below the repository's root.
const (
	CRD     = "deploy/manifests/parts/crd.yaml"
	Install = "deploy/manifests/pathways.yaml"
)

var parts = []string{"namespace.yaml", "crd.yaml", "rbac.yaml", "deployment.yaml"}

const header = `# Installs the operator for PathwaysJobs. Made from parts/ by 'go generate ./...' in operator/: do not edit.
# ghcr.io/openpathways and VERSION are placeholders in an unreleased file; 'pathways install' fills them in.
`

// Generate returns the generated files by their paths below root, the repository's root.
func Generate(root string) (map[string][]byte, error) {
	crd, err := generateCRD(filepath.Join(root, "operator"))
	if err != nil {
		return nil, err
	}
	install := []byte(header)
	for _, part := range parts {
		content := crd
		if part != "crd.yaml" {
			if content, err = os.ReadFile(filepath.Join(root, "deploy/manifests/parts", part)); err != nil {
				return nil, err
			}
		}
		install = append(install, "---\n"...)
		install = append(install, bytes.TrimPrefix(content, []byte("---\n"))...)
	}
	return map[string][]byte{CRD: crd, Install: install}, nil
}

func generateCRD(module string) ([]byte, error) {
	out, err := os.MkdirTemp("", "crd")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	command := exec.Command("go", "tool", "controller-gen", "crd:generateEmbeddedObjectMeta=true", "paths=./api/...", "output:crd:dir="+out)
	command.Dir = module
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("controller-gen: %w\n%s", err, output)
	}
	content, err := os.ReadFile(filepath.Join(out, crdFile))
	if err != nil {
		return nil, err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return nil, err
	}
	// Kubernetes' own types bring half a megabyte of descriptions; 'kubectl apply' takes a quarter.
	for version := range items(crd, "spec", "versions") {
		spec := properties(version["schema"], "openAPIV3Schema", "properties", "spec", "properties")
		dropDescriptions(properties(spec["controller"], "properties")["template"], true)
		component := properties(spec["customComponents"], "items", "properties")
		dropDescriptions(component["customEnv"], true)
		dropDescriptions(component["resources"], true)
	}
	return yaml.Marshal(crd)
}

func items(object map[string]any, path ...string) func(yield func(map[string]any) bool) {
	parent := properties(object, path[:len(path)-1]...)
	return func(yield func(map[string]any) bool) {
		for _, item := range parent[path[len(path)-1]].([]any) {
			if !yield(item.(map[string]any)) {
				return
			}
		}
	}
}

// properties walks down maps; a missing step is a mistake in this program and panics.
func properties(object any, path ...string) map[string]any {
	for _, step := range path {
		object = object.(map[string]any)[step]
	}
	return object.(map[string]any)
}

// dropDescriptions removes all descriptions inside a schema, but not its own.
func dropDescriptions(schema any, outermost bool) {
	switch schema := schema.(type) {
	case map[string]any:
		if _, isText := schema["description"].(string); isText && !outermost { // else: a property of that name
			delete(schema, "description")
		}
		for _, inner := range schema {
			dropDescriptions(inner, false)
		}
	case []any:
		for _, inner := range schema {
			dropDescriptions(inner, false)
		}
	}
}
