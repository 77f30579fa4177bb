package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

var (
	at    = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	given = []file{{"epigraph", true, []byte("binary")}, {"LICENSE", false, []byte("text")}}
)

func TestArchives(t *testing.T) {
	for name, write := range map[string]func(io.Writer, string, []file, time.Time) error{"Tar": writeTar, "Zip": writeZip} {
		t.Run(name+"/EqualInputGivesEqualBytes", func(t *testing.T) {
			var a, b bytes.Buffer
			for _, w := range []*bytes.Buffer{&a, &b} {
				if err := write(w, "x", given, at.In(time.FixedZone("", 3600*(1+w.Len()%2)))); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Fatal("the bytes differ")
			}
		})
	}
	t.Run("Tar/HasAll", func(t *testing.T) {
		var b bytes.Buffer
		if err := writeTar(&b, "x", given, at); err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(&b)
		if err != nil {
			t.Fatal(err)
		}
		r := tar.NewReader(z)
		for _, want := range given {
			h, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if h.Name != "x/"+want.name || os.FileMode(h.Mode) != want.mode() || !h.ModTime.Equal(at) || h.Uid != 0 || h.Uname != "" {
				t.Fatalf("got %+v", h)
			}
		}
	})
	t.Run("Zip/HasAll", func(t *testing.T) {
		var b bytes.Buffer
		if err := writeZip(&b, "x", given, at); err != nil {
			t.Fatal(err)
		}
		r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range given {
			if f := r.File[i]; f.Name != "x/"+want.name || f.Mode() != want.mode() || !f.Modified.Equal(at) {
				t.Fatalf("got %+v", f.FileHeader)
			}
		}
	})
}

func TestNotices(t *testing.T) {
	cache, root := t.TempDir(), t.TempDir()
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(root, "LICENSE"), "of Go")
	put(filepath.Join(cache, "example.com/!big@v1.0.0/LICENSE.txt"), "of Big")
	put(filepath.Join(cache, "example.com/!big@v1.0.0/NOTICE"), "notice of Big")
	put(filepath.Join(cache, "example.com/!big@v1.0.0/license.go"), "package license")
	put(filepath.Join(cache, "example.com/bare@v1.0.0/main.go"), "package bare")
	info := &debug.BuildInfo{GoVersion: "go1.26.0", Deps: []*debug.Module{{Path: "example.com/Big", Version: "v1.0.0"}, {Path: ours + "/proto", Version: "(devel)"}}}
	text, err := notices(info, cache, root)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"of Go", "example.com/Big v1.0.0", "of Big", "notice of Big"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if strings.Contains(string(text), "package license") {
		t.Error("source is no license")
	}
	info.Deps = append(info.Deps, &debug.Module{Path: "example.com/bare", Version: "v1.0.0"})
	if _, err := notices(info, cache, root); err == nil || !strings.Contains(err.Error(), "example.com/bare v1.0.0 has no license text") {
		t.Errorf("got %v", err)
	}
}
