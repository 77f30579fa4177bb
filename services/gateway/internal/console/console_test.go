package console_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/gateway/internal/console"
)

// maxBundle is what all files of the console may weigh together in gzip.
const maxBundle = 600 << 10

func get(t *testing.T, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	p, err := console.New()
	require.NoError(t, err)
	r := request(path, headers...)
	require.True(t, p.Wants(r), path)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func request(path string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// script is the address of the script that index.html loads.
func script(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`<script type="module" crossorigin src="(/assets/[^"]+\.js)"`).FindStringSubmatch(get(t, "/").Body.String())
	require.Len(t, m, 2)
	return m[1]
}

func TestWants(t *testing.T) {
	t.Parallel()
	p, err := console.New()
	require.NoError(t, err)
	browser := []string{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"}
	for _, c := range []struct {
		name, path string
		headers    []string
		want       bool
	}{
		{"Root/WhoeverAsks", "/", nil, true},
		{"Page/ABrowser", "/runs/run_1", browser, true},
		{"Page/AClientOfTheAPI", "/nowhere", []string{"Accept", "application/json"}, false},
		{"API/ABrowser", "/v1/rnus", browser, false},
		{"API/ItsRoot", "/v1", browser, false},
		{"API/ANameThatOnlyBeginsAlike", "/v1x", browser, true},
		{"Asset/There", script(t), nil, true},
		{"Asset/Gone", "/assets/index-00000000.js", browser, false},
		{"File/There", "/favicon.svg", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, p.Wants(request(c.path, c.headers...)))
		})
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	t.Run("Index/IsNeverKept", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/", "/runs/run_1"} {
			w := get(t, path, "Accept", "text/html")
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, "no-cache", w.Header().Get("Cache-Control"))
			require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
			require.Contains(t, w.Body.String(), `<div id="root">`)
		}
	})
	t.Run("Assets/AreKeptForEver", func(t *testing.T) {
		t.Parallel()
		w := get(t, script(t))
		require.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
		require.Equal(t, "text/javascript; charset=utf-8", w.Header().Get("Content-Type"))
	})
	t.Run("Policy/NothingFromElsewhereAndNothingInline", func(t *testing.T) {
		t.Parallel()
		w := get(t, "/")
		csp := w.Header().Get("Content-Security-Policy")
		require.Contains(t, csp, "default-src 'none'")
		require.Contains(t, csp, "frame-ancestors 'none'")
		require.NotContains(t, csp, "unsafe")
		require.NotRegexp(t, `<script>|<style|style=|\son\w+=|https?://`, w.Body.String(), "what the policy would refuse")
	})
	t.Run("Etag/SavesTheBody", func(t *testing.T) {
		t.Parallel()
		for _, encoding := range []string{"", "gzip"} {
			first := get(t, "/", "Accept-Encoding", encoding)
			again := get(t, "/", "Accept-Encoding", encoding, "If-None-Match", first.Header().Get("ETag"))
			require.Equal(t, http.StatusNotModified, again.Code)
			require.Empty(t, again.Body.String())
		}
	})
	for _, c := range []struct {
		name, accept string
		compressed   bool
	}{
		{"Gzip/Asked", "br, gzip", true},
		{"Gzip/Anything", "*", true},
		{"Gzip/NotAsked", "br", false},
		{"Gzip/Refused", "gzip;q=0, identity", false},
		{"Gzip/ByWeight", "gzip; q=0.5", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := get(t, script(t), "Accept-Encoding", c.accept)
			require.Equal(t, "Accept-Encoding", w.Header().Get("Vary"))
			require.Equal(t, fmt.Sprint(w.Body.Len()), w.Header().Get("Content-Length"))
			plain := get(t, script(t)).Body.Bytes()
			if !c.compressed {
				require.Empty(t, w.Header().Get("Content-Encoding"))
				require.Equal(t, plain, w.Body.Bytes())
				return
			}
			require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
			z, err := gzip.NewReader(w.Body)
			require.NoError(t, err)
			text, err := io.ReadAll(z)
			require.NoError(t, err)
			require.Equal(t, plain, text)
		})
	}
}

// TestBundle looks at the files that are committed.
func TestBundle(t *testing.T) {
	t.Parallel()
	t.Run("Sources/AreThoseOfTheFolderConsole", func(t *testing.T) {
		t.Parallel()
		built, err := os.ReadFile(filepath.Join("bundle", "sources.txt"))
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(string(built)), sources(t), "the bundle is stale: run `make console` and commit what it builds")
	})
	t.Run("Size/FitsInGzip", func(t *testing.T) {
		t.Parallel()
		total := 0
		walk(t, "bundle", func(_ string, text []byte) { total += len(text) })
		t.Logf("the bundle has %d bytes in gzip", total)
		require.LessOrEqual(t, total, maxBundle)
	})
	t.Run("Licenses/OfEveryPackageWithin", func(t *testing.T) {
		t.Parallel()
		text := get(t, "/licenses.txt").Body.String()
		var names []string
		for _, m := range regexp.MustCompile(`(?m)^(\S+) \d+\.\d+\.\d+ \((.*)\)$`).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
			require.Contains(t, []string{"MIT", "ISC", "BSD-3-Clause", "Apache-2.0"}, m[2], m[1])
		}
		for _, name := range []string{"react", "react-dom", "scheduler", "@tanstack/react-query"} {
			require.Contains(t, names, name)
		}
	})
}

// sources is the hash that the build writes into the bundle: over the names and the hashes of all files from
// which the bundle is built. console/build.ts computes it likewise.
func sources(t *testing.T) string {
	t.Helper()
	var lines []string
	walk(t, filepath.Join("..", "..", "..", "..", "console"), func(name string, text []byte) {
		top, _, _ := strings.Cut(name, "/")
		if slices.Contains([]string{"node_modules", "test"}, top) || name == "src/api/schema.d.ts" {
			return
		}
		sum := sha256.Sum256(text)
		lines = append(lines, name+" "+hex.EncodeToString(sum[:])+"\n")
	})
	const schema = "docs/workflow.schema.json" // the editor has it in it
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", filepath.FromSlash(schema)))
	require.NoError(t, err)
	hash := sha256.Sum256(text)
	lines = append(lines, "../"+schema+" "+hex.EncodeToString(hash[:])+"\n")
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

func walk(t *testing.T, root string, see func(name string, text []byte)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "node_modules" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		see(filepath.ToSlash(name), text)
		return err
	}))
}
