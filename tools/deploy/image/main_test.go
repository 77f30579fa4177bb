package main

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func TestBuild(t *testing.T) {
	img, err := build([]byte("exe"), []byte("zones"), roots(), "arm64")
	if err != nil {
		t.Fatal(err)
	}

	t.Run("Content/IsWhatTheDockerfileHas", func(t *testing.T) {
		got := content(t, img)
		want := map[string]int64{
			"etc": 0o755, "etc/passwd": 0o644, "etc/group": 0o644, "etc/ssl": 0o755, "etc/ssl/certs": 0o755,
			"etc/ssl/certs/ca-certificates.crt": 0o644, "tmp": 0o1777, "usr": 0o755, "usr/share": 0o755,
			"usr/share/zoneinfo.zip": 0o644, "epigraph": 0o755,
		}
		if len(got) != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for name, mode := range want {
			if got[name].mode != mode {
				t.Errorf("%s: got mode %o, want %o", name, got[name].mode, mode)
			}
		}
		if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(got["etc/ssl/certs/ca-certificates.crt"].body) {
			t.Error("the CA file holds no certificate")
		}
	})

	t.Run("Config/RunsWithoutPrivileges", func(t *testing.T) {
		c, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c.Config.User != "65532:65532" || c.OS != "linux" || c.Architecture != "arm64" || c.Config.Entrypoint[0] != "/epigraph" {
			t.Fatalf("got %+v", c)
		}
		if len(c.RootFS.DiffIDs) != 2 {
			t.Fatalf("got %d layers, want 2", len(c.RootFS.DiffIDs))
		}
	})

	t.Run("Digest/SameForSameInput", func(t *testing.T) {
		again, err := build([]byte("exe"), []byte("zones"), roots(), "arm64")
		if err != nil {
			t.Fatal(err)
		}
		a, errA := img.Digest()
		b, errB := again.Digest()
		if errA != nil || errB != nil || a != b {
			t.Fatalf("got %v %v, %v %v", a, errA, b, errB)
		}
	})
}

func content(t *testing.T, img v1.Image) map[string]file {
	t.Helper()
	got := map[string]file{}
	r := tar.NewReader(mutate.Extract(img))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		got[name] = file{name, h.Mode, body}
	}
}
