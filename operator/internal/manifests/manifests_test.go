package manifests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../../.."

func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := Generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the sources give: run 'go generate ./...'", path)
		}
	}
}

// 'kubectl apply' keeps the whole object in an annotation, whose limit is 256 KiB.
func TestTheCRDIsSmallEnoughForKubectlApply(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, CRD))
	if err != nil {
		t.Fatal(err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	compact, err := json.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	if len(compact) > 250_000 {
		t.Errorf("%d bytes", len(compact))
	}
	t.Logf("%d bytes", len(compact))
}
