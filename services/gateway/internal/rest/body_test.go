package rest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
)

// TestReadBody holds that a body waits for room whether its length is known before or not.
func TestReadBody(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	text := strings.Repeat("x", mib)
	for name, length := range map[string]int64{"WithALength": mib, "InChunks": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := inflight.New(16 * mib)
				read := func(body chan<- []byte) error {
					share := b.Share("a")
					defer share.Free()
					r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader(text))).WithContext(t.Context())
					r.ContentLength = length
					got, err := readBody(httptest.NewRecorder(), r, 2*mib, &share)
					if err == nil {
						body <- got
					}
					return err
				}
				other := b.Share("a")
				require.NoError(t, other.Take(4*mib))
				body, failed := make(chan []byte, 1), make(chan error, 1)
				go func() { failed <- read(body) }()
				synctest.Wait()
				require.Empty(t, failed, "it waits")
				other.Free()
				require.NoError(t, <-failed)
				require.Len(t, <-body, mib)
				require.NoError(t, other.Take(4*mib))
				require.Equal(t, inflight.ReasonBusy, errs.ReasonOf(read(body)), "but not for ever")
				other.Free()
				require.Zero(t, b.Used())
			})
		})
	}
}
