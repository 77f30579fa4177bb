// Command image writes the container image as a tarball that `docker load` and
// `ctr images import` read, on a machine without a Docker daemon. Its content is
// that of deploy/docker/Dockerfile: the static binary, CA roots, zone data, an
// unprivileged user, and nothing else. Equal input gives equal bytes.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	binary := flag.String("binary", "", "the static binary")
	zones := flag.String("zoneinfo", "", "Go's lib/time/zoneinfo.zip")
	tag := flag.String("tag", "", "name of the image")
	arch := flag.String("arch", runtime.GOARCH, "architecture of the binary")
	out := flag.String("out", "", "tarball to write")
	flag.Parse()
	if err := run(*binary, *zones, *tag, *arch, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(binary, zones, tag, arch, out string) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	exe, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	zoneinfo, err := os.ReadFile(zones)
	if err != nil {
		return err
	}
	img, err := build(exe, zoneinfo, roots(), arch)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, ref, img)
}

// roots returns Mozilla's CA roots as PEM, without those that are trusted under
// a constraint only, which a PEM file cannot express.
func roots() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			// A bytes.Buffer does not fail.
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate})
		}
	}
	return b.Bytes()
}

type file struct {
	name string
	mode int64
	body []byte // nil for a folder
}

const passwd = "epigraph:x:65532:65532:epigraph:/:/sbin/nologin\n"

// build puts what rarely changes in the first layer and the binary in the second.
func build(exe, zoneinfo, roots []byte, arch string) (v1.Image, error) {
	base, err := layer([]file{
		{"etc/", 0o755, nil},
		{"etc/passwd", 0o644, []byte(passwd)},
		{"etc/group", 0o644, []byte("epigraph:x:65532:\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots},
		{"tmp/", 0o1777, nil},
		{"usr/", 0o755, nil},
		{"usr/share/", 0o755, nil},
		{"usr/share/zoneinfo.zip", 0o644, zoneinfo},
	})
	if err != nil {
		return nil, err
	}
	program, err := layer([]file{{"epigraph", 0o755, exe}})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, base, program)
	if err != nil {
		return nil, err
	}
	old, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := old.DeepCopy()
	config.Architecture, config.OS = arch, "linux"
	config.Config = v1.Config{
		Entrypoint: []string{"/epigraph"},
		Env:        []string{"ZONEINFO=/usr/share/zoneinfo.zip"},
		User:       "65532:65532",
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "epigraph",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, config)
}

func layer(files []file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.body)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}
		if f.body == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	})
}
