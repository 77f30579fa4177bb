// Package console owns the pages of the console: the bundle that `make console` builds from the folder
// console, and the headers with which browsers get it. It must not know the API, which the pages call
// as any other client does.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed all:bundle
var bundle embed.FS

const (
	// indexName is the page that begins the console, whatever its address.
	indexName = "index.html"
	// assets is the folder of the files whose names have a hash of what they hold.
	assets = "assets/"
	// policy lets a page use its own files and its own server, and nothing else: no text of a run can
	// become a script, and no other site can frame the page.
	policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// Pages serves the bundle. It is immutable and safe for concurrent use.
type Pages struct {
	files map[string]*file
}

// file is one file of the bundle.
type file struct {
	kind string
	etag string
	// compressed is the file in gzip, as the build has left it.
	compressed []byte
	// raw is the file itself. It is made when somebody asks who does not read gzip.
	raw func() ([]byte, error)
}

// New reads the bundle that is embedded.
func New() (*Pages, error) {
	p := &Pages{files: map[string]*file{}}
	root, err := fs.Sub(bundle, "bundle")
	if err != nil {
		return nil, fmt.Errorf("open console: %w", err)
	}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, isGzip := strings.CutSuffix(name, ".gz")
		if !isGzip {
			return nil // the hash of the sources, which is for tests
		}
		compressed, err := fs.ReadFile(root, name+".gz")
		if err != nil {
			return err
		}
		p.files[name] = newFile(name, compressed)
		return nil
	})
	if err == nil && p.files[indexName] == nil {
		err = fmt.Errorf("the bundle has no %s", indexName)
	}
	if err != nil {
		return nil, fmt.Errorf("open console: %w", err)
	}
	return p, nil
}

func newFile(name string, compressed []byte) *file {
	sum := sha256.Sum256(compressed)
	return &file{
		kind: kindOf(name), etag: hex.EncodeToString(sum[:12]), compressed: compressed,
		raw: sync.OnceValues(func() ([]byte, error) {
			r, err := gzip.NewReader(bytes.NewReader(compressed))
			if err != nil {
				return nil, err
			}
			return io.ReadAll(r)
		}),
	}
}

// kindOf is the media type of a file. The tables of the machine are asked last: they differ.
func kindOf(name string) string {
	switch ext := path.Ext(name); ext {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".txt":
		return "text/plain; charset=utf-8"
	default:
		if t := mime.TypeByExtension(ext); t != "" {
			return t
		}
		return "application/octet-stream"
	}
}

// Wants reports whether a GET of a path that is none of the API is for the console: for its beginning,
// for one of its files, or for the address of a page, which a browser asks for as HTML. What is below
// /v1 is the API's, whether it is there or not.
func (p *Pages) Wants(r *http.Request) bool {
	name, ok := strings.CutPrefix(r.URL.Path, "/")
	switch {
	case !ok || name == "v1" || strings.HasPrefix(name, "v1/"):
		return false
	case name == "" || p.files[name] != nil:
		return true
	case strings.HasPrefix(name, assets):
		return false // of an older bundle: HTML in place of a script would only confuse
	default:
		return strings.Contains(r.Header.Get("Accept"), "text/html")
	}
}

// ServeHTTP answers a request that Wants.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	f := p.files[name]
	if f == nil {
		name, f = indexName, p.files[indexName]
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Add("Vary", "Accept-Encoding")
	if strings.HasPrefix(name, assets) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache")
	}
	body, etag := f.compressed, `"`+f.etag+`.gz"`
	zipped := acceptsGzip(r.Header.Get("Accept-Encoding"))
	if !zipped {
		var err error
		if body, err = f.raw(); err != nil {
			panic(fmt.Errorf("read %s of the console: %w", name, err)) // the bundle of the binary is damaged
		}
		etag = `"` + f.etag + `"`
	}
	h.Set("ETag", etag)
	for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == etag || tag == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if zipped {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// acceptsGzip reads Accept-Encoding; a weight of 0 refuses.
func acceptsGzip(header string) bool {
	for one := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(one, ";")
		if name = strings.TrimSpace(name); !strings.EqualFold(name, "gzip") && name != "*" {
			continue
		}
		weight, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		if !ok {
			return true
		}
		q, err := strconv.ParseFloat(weight, 64)
		return err == nil && q > 0
	}
	return false
}
