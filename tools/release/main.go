// Command release packs one binary for its users: with the texts beside it and the licenses of the linked
// modules, as a .tar.gz, or as a .zip for Windows. Equal input gives equal bytes.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
)

// noticesName is the file with the licenses of the linked modules.
const noticesName = "THIRD_PARTY_LICENSES.txt"

func main() {
	date := flag.String("date", "", "time of everything in the archive, RFC 3339")
	binary := flag.String("binary", "", "the binary")
	name := flag.String("name", "", "name of the archive without its ending, and of the folder in it")
	out := flag.String("out", "", "folder that the archive is written to")
	flag.Parse()
	if err := run(*date, *binary, *name, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type file struct {
	name string
	exec bool
	body []byte
}

func run(date, binary, name, out string, texts []string) error {
	at, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return fmt.Errorf("date: %w", err)
	}
	var files []file
	for _, p := range append([]string{binary}, texts...) {
		body, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		files = append(files, file{filepath.Base(p), p == binary, body})
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	cache, err := goEnv("GOMODCACHE")
	if err != nil {
		return err
	}
	root, err := goEnv("GOROOT")
	if err != nil {
		return err
	}
	text, err := notices(info, cache, root)
	if err != nil {
		return err
	}
	files = append(files, file{name: noticesName, body: text})

	var b bytes.Buffer
	ending := ".tar.gz"
	if strings.HasSuffix(binary, ".exe") {
		ending = ".zip"
		err = writeZip(&b, name, files, at)
	} else {
		err = writeTar(&b, name, files, at)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, name+ending), b.Bytes(), 0o644)
}

func goEnv(key string) (string, error) {
	out, err := exec.Command("go", "env", key).Output()
	return strings.TrimSpace(string(out)), err
}

func (f file) mode() os.FileMode {
	if f.exec {
		return 0o755
	}
	return 0o644
}

func writeTar(w io.Writer, folder string, files []file, at time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(folder, f.name), Size: int64(len(f.body)), Mode: int64(f.mode()), ModTime: at, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.body); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func writeZip(w io.Writer, folder string, files []file, at time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: path.Join(folder, f.name), Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(f.mode())
		e, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := e.Write(f.body); err != nil {
			return err
		}
	}
	return z.Close()
}

// ours is the module path of the product, whose license is packed beside the binary.
const ours = "github.com/epigraph-run/epigraph"

// notices are the licenses of Go and of every module in a binary. A module without one is an error: nobody
// may ship it.
func notices(info *debug.BuildInfo, cache, root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "What is linked into this program, and under which licenses.\n")
	section(&b, "Go and its standard library, "+info.GoVersion, text)
	deps := slices.Clone(info.Deps)
	slices.SortFunc(deps, func(a, b *debug.Module) int { return strings.Compare(a.Path, b.Path) })
	var faults []error
	for _, d := range deps {
		if d.Path == ours || strings.HasPrefix(d.Path, ours+"/") {
			continue
		}
		if d.Replace != nil {
			d = d.Replace
		}
		texts, err := licenses(cache, d.Path, d.Version)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		section(&b, d.Path+" "+d.Version, texts...)
	}
	return b.Bytes(), errors.Join(faults...)
}

func section(b *bytes.Buffer, title string, texts ...[]byte) {
	fmt.Fprintf(b, "\n%s\n%s\n", strings.Repeat("=", 80), title)
	for _, t := range texts {
		fmt.Fprintf(b, "%s\n%s\n", strings.Repeat("-", 80), bytes.TrimSpace(t))
	}
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright)([.-].*)?$`)

// licenses are the license texts in the root of a module, as the module cache has it.
func licenses(cache, modulePath, version string) (texts [][]byte, err error) {
	escaped, err := module.EscapePath(modulePath)
	if err != nil {
		return nil, err
	}
	v, err := module.EscapeVersion(version)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, escaped+"@"+v)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("%s %s has no license text", modulePath, version)
	}
	return texts, nil
}
