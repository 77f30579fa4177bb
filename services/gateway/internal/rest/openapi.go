package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	epigraphproto "github.com/epigraph-run/epigraph/proto"
)

// document serves the committed OpenAPI document as it is.
func document() http.Handler {
	raw := epigraphproto.OpenAPI()
	sum := sha256.Sum256(raw)
	etag := `"` + hex.EncodeToString(sum[:12]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("ETag", etag)
		h.Set("Cache-Control", "no-cache")
		for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
			if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == etag || tag == "*" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		h.Set("Content-Type", jsonType)
		h.Set("Content-Length", fmt.Sprint(len(raw)))
		_, _ = w.Write(raw)
	})
}
