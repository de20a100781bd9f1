package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The node's registry stands for all registries of the world: docker.io/x/y is its repository docker.io/x/y. So images
// are really pulled, whatever their pull policy, and what was not loaded really cannot be pulled.

const (
	pauseImage  = "registry.k8s.io/pause:3.10"
	jobSetImage = "us-central1-docker.pkg.dev/k8s-staging-images/jobset/jobset:v0.11.1"
)

func newRegistry(folder string) http.Handler {
	inner := registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(folder)),
		registry.Logger(log.New(io.Discard, "", 0)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The runtime tells the registry that it really wants as the query `ns`.
		if upstream := r.URL.Query().Get("ns"); upstream != "" {
			r.URL.Path = strings.Replace(r.URL.Path, "/v2/", "/v2/"+upstream+"/", 1)
		}
		inner.ServeHTTP(w, r)
	})
}

// reference is where the node's registry has the image.
func (c *Cluster) reference(image string) (name.Tag, error) {
	tag, err := name.NewTag(image)
	if err != nil {
		return tag, err
	}
	upstream := tag.RegistryStr()
	if upstream == name.DefaultRegistry {
		upstream = "docker.io"
	}
	return name.NewTag(fmt.Sprintf("%s/%s/%s:%s", c.registry(), upstream, tag.RepositoryStr(), tag.TagStr()), name.Insecure)
}

func (c *Cluster) push(ctx context.Context, image string, content v1.Image) error {
	reference, err := c.reference(image)
	if err != nil {
		return err
	}
	return remote.Write(reference, content, remote.WithContext(ctx))
}

// pushProgram pushes an image that is one static program, as `entrypoint`.
func (c *Cluster) pushProgram(ctx context.Context, image, path, entrypoint string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	header := &tar.Header{Name: entrypoint[1:], Mode: 0o755, Size: int64(len(program))}
	if err := errors.Join(writer.WriteHeader(header), write(writer, program), writer.Close()); err != nil {
		return err
	}
	content := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	content, err = mutate.AppendLayers(content, static.NewLayer(archive.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		return err
	}
	config, err := content.ConfigFile()
	if err != nil {
		return err
	}
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{entrypoint}
	config.Config.User = "65532:65532"
	if content, err = mutate.ConfigFile(content, config); err != nil {
		return err
	}
	return c.push(ctx, image, content)
}

func write(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

// load pushes the images of an archive in OCI layout to the node's registry, and returns their names. The archive's
// index names them as containerd does.
func (c *Cluster) load(ctx context.Context, archive string) ([]string, error) {
	folder, err := os.MkdirTemp(c.State, "load")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if err := unpack(archive, folder); err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, fmt.Errorf("%s is no archive in OCI layout: %w", archive, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, descriptor := range manifest.Manifests {
		image := descriptor.Annotations["io.containerd.image.name"]
		if image == "" {
			return nil, fmt.Errorf("%s: the image %s has no name (annotation io.containerd.image.name)", archive, descriptor.Digest)
		}
		content, err := index.Image(descriptor.Digest)
		if err != nil {
			return nil, err
		}
		if err := c.push(ctx, image, content); err != nil {
			return nil, err
		}
		names = append(names, image)
	}
	return names, nil
}

func unpack(archive, folder string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(filepath.Clean(header.Name), 0o755)
		case tar.TypeReg:
			err = writeFile(root, filepath.Clean(header.Name), reader)
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(root *os.Root, path string, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := root.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
