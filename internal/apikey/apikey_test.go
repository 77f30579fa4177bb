package apikey_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestToken(t *testing.T) {
	t.Parallel()
	secret, hash := apikey.New("team-a", "key_01ABC")
	t.Run("Parse/ReadsWhatNewWrote", func(t *testing.T) {
		t.Parallel()
		got, ok := apikey.Parse(secret)
		require.True(t, ok)
		require.Equal(t, apikey.Token{Namespace: "team-a", ID: "key_01ABC", Hash: hash}, got)
	})
	t.Run("New/IsNeverTheSame", func(t *testing.T) {
		t.Parallel()
		other, _ := apikey.New("team-a", "key_01ABC")
		require.NotEqual(t, secret, other)
	})
	for name, bad := range map[string]string{
		"Empty": "", "Other": "ek_secret", "NoID": "epk_team-a", "NoNamespace": strings.Replace(secret, "team-a", "", 1),
		"Short": secret[:len(secret)-4], "Long": secret + strings.Repeat("A", 300), "NoBase64": secret[:len(secret)-1] + "!",
	} {
		t.Run("Parse/Refuses/"+name, func(t *testing.T) {
			t.Parallel()
			_, ok := apikey.Parse(bad)
			require.False(t, ok)
		})
	}
}

// shelf answers lookups and counts them.
type shelf struct {
	mu    sync.Mutex
	keys  map[string]apikey.Key
	err   error
	takes time.Duration
	asked atomic.Int64
}

func (s *shelf) lookup(_ context.Context, t apikey.Token) (apikey.Key, bool, error) {
	s.asked.Add(1)
	time.Sleep(s.takes) //nolint:forbidigo // fake time
	s.mu.Lock()
	defer s.mu.Unlock()
	k, found := s.keys[t.Namespace+"/"+t.ID]
	return k, found, s.err
}

func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func TestRingOfARegistryThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		secret, _ := apikey.New("a", "key_1")
		token, ok := apikey.Parse(secret)
		require.True(t, ok)
		r := apikey.NewRing(func(ctx context.Context, _ apikey.Token) (apikey.Key, bool, error) {
			<-ctx.Done()
			return apikey.Key{}, false, ctx.Err()
		})
		began := time.Now()
		_, _, err := r.Authenticate(t.Context(), token)
		require.Equal(t, apikey.ReasonAway, errs.ReasonOf(err))
		require.True(t, errs.Is(err, errs.Unavailable))
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestRing(t *testing.T) {
	t.Parallel()
	// each runs with a ring that knows one key, whose token it gets, and in a bubble whose time is
	// its own.
	each := func(name string, f func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				secret, hash := apikey.New("a", "key_1")
				token, ok := apikey.Parse(secret)
				require.True(t, ok)
				s := &shelf{keys: map[string]apikey.Key{"a/key_1": {Hash: hash, Name: "ci", Scopes: []access.Scope{access.Read}}}}
				f(t, s, apikey.NewRing(s.lookup), token)
			})
		})
	}
	opens := func(t *testing.T, r *apikey.Ring, token apikey.Token) bool {
		t.Helper()
		_, found, err := r.Authenticate(t.Context(), token)
		require.NoError(t, err)
		return found
	}
	each("Key/Opens", func(t *testing.T, _ *shelf, r *apikey.Ring, token apikey.Token) {
		who, found, err := r.Authenticate(t.Context(), token)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, access.Principal{Kind: access.Key, Name: "ci", Scopes: []access.Scope{access.Read}}, who)
	})
	each("Key/OfAnotherSecretOpensNothing", func(t *testing.T, _ *shelf, r *apikey.Ring, token apikey.Token) {
		token.Hash[0]++
		require.False(t, opens(t, r, token))
	})
	each("Guesses/OfOneIDAreAskedAboutOnce", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		for i := range 100 {
			token.Hash[1] = byte(i)
			token.Hash[0]++
			require.False(t, opens(t, r, token))
		}
		require.EqualValues(t, 1, s.asked.Load())
	})
	each("Guesses/OfAnUnknownIDAreAskedAboutOnce", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		token.ID = "key_2"
		for range 100 {
			require.False(t, opens(t, r, token))
		}
		require.EqualValues(t, 1, s.asked.Load())
	})
	from := func(t *testing.T, remote string) context.Context {
		return access.WithOrigin(t.Context(), access.Origin{Remote: remote})
	}
	// guess shows ids that there are not, and returns how many were looked up and the last error.
	guess := func(t *testing.T, s *shelf, r *apikey.Ring, remote string, tries int) (asked int64, err error) {
		t.Helper()
		before := s.asked.Load()
		for i := range tries {
			_, found, fault := r.Authenticate(from(t, remote), apikey.Token{Namespace: "a", ID: fmt.Sprintf("key_%s_%d_%d", remote, i, before)})
			require.False(t, found)
			err = fault
		}
		return s.asked.Load() - before, err
	}
	each("Guesses/OfManyIDsFromOneAddressAreRefused", func(t *testing.T, s *shelf, r *apikey.Ring, _ apikey.Token) {
		asked, err := guess(t, s, r, "192.0.2.1", 1000)
		require.EqualValues(t, 50, asked)
		require.Equal(t, apikey.ReasonGuessing, errs.ReasonOf(err))
		require.True(t, errs.Is(err, errs.ResourceExhausted))
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		asked, _ = guess(t, s, r, "192.0.2.1", 1000)
		require.EqualValues(t, 5, asked)
	})
	each("Guesses/FromAnotherAddressAreItsOwn", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		_, err := guess(t, s, r, "192.0.2.1", 100)
		require.Error(t, err)
		_, found, err := r.Authenticate(from(t, "192.0.2.2"), token)
		require.NoError(t, err)
		require.True(t, found)
	})
	each("Guesses/FromOneNetworkOfIPv6Together", func(t *testing.T, s *shelf, r *apikey.Ring, _ apikey.Token) {
		_, err := guess(t, s, r, "2001:db8::1", 50)
		require.NoError(t, err)
		_, err = guess(t, s, r, "2001:db8::ffff:2", 1)
		require.Error(t, err)
		_, err = guess(t, s, r, "2001:db8:0:1::1", 1)
		require.NoError(t, err)
	})
	each("Guesses/KeepNoKnownKeyOut", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		_, found, err := r.Authenticate(from(t, "192.0.2.1"), token)
		require.NoError(t, err)
		require.True(t, found)
		_, err = guess(t, s, r, "192.0.2.1", 100)
		require.Error(t, err)
		for range 10 {
			time.Sleep(6 * time.Second) //nolint:forbidigo // fake time; each time it is looked up anew
			_, err = guess(t, s, r, "192.0.2.1", 100)
			require.Error(t, err)
			_, found, err = r.Authenticate(from(t, "192.0.2.1"), token)
			require.NoError(t, err)
			require.True(t, found)
		}
	})
	each("Guesses/PushNoKeyOut", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		require.True(t, opens(t, r, token))
		for i := range 300 {
			asked, _ := guess(t, s, r, fmt.Sprint("192.0.2.", i), 50)
			require.EqualValues(t, 50, asked)
		}
		before := s.asked.Load()
		require.True(t, opens(t, r, token))
		require.Equal(t, before, s.asked.Load(), "it is still known")
	})
	each("Good/KeysCostNothing", func(t *testing.T, s *shelf, r *apikey.Ring, _ apikey.Token) {
		for i := range 200 {
			secret, hash := apikey.New("a", fmt.Sprint("key_good", i))
			s.keys[fmt.Sprint("a/key_good", i)] = apikey.Key{Hash: hash, Name: "n"}
			token, ok := apikey.Parse(secret)
			require.True(t, ok)
			require.True(t, opens(t, r, token))
		}
	})
	each("Outage/IsNoGuess", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		s.fail(errors.New("away"))
		for range 200 {
			_, _, err := r.Authenticate(t.Context(), token)
			require.Equal(t, apikey.ReasonAway, errs.ReasonOf(err))
		}
	})
	each("Revocation/IsHeardWithinSeconds", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		require.True(t, opens(t, r, token))
		delete(s.keys, "a/key_1")
		time.Sleep(4 * time.Second) //nolint:forbidigo // fake time
		require.True(t, opens(t, r, token), "an answer is kept")
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		require.False(t, opens(t, r, token))
	})
	each("Expiry/IsKnownWithoutAsking", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		k := s.keys["a/key_1"]
		k.Expires = time.Now().Add(2 * time.Second)
		s.keys["a/key_1"] = k
		require.True(t, opens(t, r, token))
		time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
		require.False(t, opens(t, r, token))
		require.EqualValues(t, 1, s.asked.Load())
	})
	each("Outage/AKnownKeyOpensForAMinute", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		require.True(t, opens(t, r, token))
		s.fail(errors.New("away"))
		time.Sleep(59 * time.Second) //nolint:forbidigo // fake time
		require.True(t, opens(t, r, token))
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		_, _, err := r.Authenticate(t.Context(), token)
		require.Equal(t, apikey.ReasonAway, errs.ReasonOf(err))
		require.True(t, errs.Is(err, errs.Unavailable))
	})
	each("Outage/AnUnknownKeyIsRefused", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		s.fail(errors.New("away"))
		_, found, err := r.Authenticate(t.Context(), token)
		require.False(t, found)
		require.Equal(t, apikey.ReasonAway, errs.ReasonOf(err))
	})
	each("Crowd/AsksOnce", func(t *testing.T, s *shelf, r *apikey.Ring, token apikey.Token) {
		s.takes = time.Second
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, found, err := r.Authenticate(t.Context(), token)
				if err != nil || !found {
					t.Error("a caller was refused")
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, s.asked.Load())
	})
}
