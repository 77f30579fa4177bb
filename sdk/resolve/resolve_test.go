package resolve_test

import (
	"context"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/resolver"

	"github.com/epigraph-run/epigraph/sdk/resolve"
)

// told receives the results of a resolver.
type told struct {
	resolver.ClientConn
	states chan resolver.State
}

func (t told) UpdateState(s resolver.State) error { t.states <- s; return nil }
func (told) ReportError(error)                    {}

func TestNamesAreLookedUpAtTheSameTime(t *testing.T) {
	asked := make(chan string)
	both := make(chan struct{})
	go func() {
		<-asked
		<-asked
		close(both)
	}()
	b := resolve.Builder{Lookup: func(ctx context.Context, host string) ([]string, error) {
		select {
		case asked <- host:
		case <-both: // a later look
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case <-both: // none is answered before the other is asked for
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return []string{map[string]string{"one": "10.0.0.1", "two": "10.0.0.2"}[host]}, nil
	}}
	cc := told{states: make(chan resolver.State, 1)}
	r, err := b.Build(resolver.Target{URL: url.URL{Scheme: "dns", Path: "/one:7400,two:7400"}}, cc, resolver.BuildOptions{})
	require.NoError(t, err)
	defer r.Close()
	var got []string
	for _, a := range (<-cc.states).Addresses {
		got = append(got, a.Addr)
	}
	require.Equal(t, []string{"10.0.0.1:7400", "10.0.0.2:7400"}, got)
}

func TestNamesAreLookedUpEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := make(chan time.Time, 10)
		b := resolve.Builder{Lookup: func(context.Context, string) ([]string, error) {
			looks <- time.Now()
			return []string{"10.0.0.1"}, nil
		}}
		cc := told{states: make(chan resolver.State, 1)}
		r, err := b.Build(resolver.Target{URL: url.URL{Scheme: "dns", Path: "/one:7400"}}, cc, resolver.BuildOptions{})
		require.NoError(t, err)
		defer r.Close()
		before := <-looks
		for range 3 {
			next := <-looks
			require.Equal(t, time.Second, next.Sub(before))
			before = next
		}
	})
}
