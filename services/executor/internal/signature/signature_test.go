package signature

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The example of the libraries of Standard Webhooks.
const (
	exampleSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	exampleTime      = 1614265330
	exampleBody      = `{"test": 2432232314}`
	exampleSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func exampleKey(t testing.TB) []byte {
	t.Helper()
	k, err := Key(exampleSecret)
	require.NoError(t, err)
	return k
}

func TestStandard(t *testing.T) {
	t.Parallel()
	k, at, now := exampleKey(t), strconv.Itoa(exampleTime), time.Unix(exampleTime, 0)
	other := Standard([]byte("0123456789abcdef"), exampleID, now, []byte(exampleBody))
	t.Run("SignsAsTheStandardDoes", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, exampleSignature, Standard(k, exampleID, now, []byte(exampleBody)))
	})
	for name, c := range map[string]struct {
		id, at, signatures, body string
		now                      time.Time
		fits                     bool
	}{
		"Fits":             {exampleID, at, exampleSignature, exampleBody, now, true},
		"OneOfSeveral":     {exampleID, at, other + " v1a,xyz " + exampleSignature, exampleBody, now, true},
		"FiveMinutesLate":  {exampleID, at, exampleSignature, exampleBody, now.Add(Tolerance), true},
		"FiveMinutesEarly": {exampleID, at, exampleSignature, exampleBody, now.Add(-Tolerance), true},
		"TooLate":          {exampleID, at, exampleSignature, exampleBody, now.Add(Tolerance + time.Second), false},
		"TooEarly":         {exampleID, at, exampleSignature, exampleBody, now.Add(-Tolerance - time.Second), false},
		"OtherBody":        {exampleID, at, exampleSignature, exampleBody + " ", now, false},
		"OtherID":          {"msg_other", at, exampleSignature, exampleBody, now, false},
		"NoID":             {"", at, exampleSignature, exampleBody, now, false},
		"OtherKey":         {exampleID, at, other, exampleBody, now, false},
		"OtherVersion":     {exampleID, at, strings.Replace(exampleSignature, "v1", "v2", 1), exampleBody, now, false},
		"OtherTime":        {exampleID, strconv.Itoa(exampleTime + 1), exampleSignature, exampleBody, now, false},
		"TimeWithSign":     {exampleID, "+" + at, exampleSignature, exampleBody, now, false},
		"NoTime":           {exampleID, "", exampleSignature, exampleBody, now, false},
		"HugeTime":         {exampleID, "9223372036854775807", exampleSignature, exampleBody, now, false},
		"NoSignature":      {exampleID, at, "", exampleBody, now, false},
		"TooMany":          {exampleID, at, strings.Repeat("v1,AAAA ", maxSignatures) + exampleSignature, exampleBody, now, false},
		"TooLong":          {exampleID, at, strings.Repeat(" ", maxHeader) + exampleSignature, exampleBody, now, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckStandard(k, c.id, c.at, c.signatures, []byte(c.body), c.now)
			if c.fits {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrRefused)
			}
		})
	}
	t.Run("WithoutKeyNothingFits", func(t *testing.T) {
		t.Parallel()
		s := Standard(nil, exampleID, now, []byte(exampleBody))
		require.ErrorIs(t, CheckStandard(nil, exampleID, at, s, []byte(exampleBody), now), ErrRefused)
	})
}

func TestGitHub(t *testing.T) {
	t.Parallel()
	// The example of GitHub's documentation.
	const secret, body = "It's a Secret to Everybody", "Hello, World!"
	const want = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	require.Equal(t, want, GitHub(secret, []byte(body)))
	require.NoError(t, CheckGitHub(secret, want, []byte(body)))
	require.NoError(t, CheckGitHub(secret, "sha256="+strings.ToUpper(want[7:]), []byte(body)))
	for name, c := range map[string][3]string{
		"OtherBody":   {secret, want, body + "!"},
		"OtherSecret": {secret + "!", want, body},
		"NoSecret":    {"", GitHub("", []byte(body)), body},
		"OldForm":     {secret, "sha1=" + want[7:], body},
		"NoHex":       {secret, "sha256=" + strings.Repeat("x", 64), body},
		"Short":       {secret, want[:20], body},
		"Empty":       {secret, "", body},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, CheckGitHub(c[0], c[1], []byte(c[2])), ErrRefused)
		})
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckToken("swordfish", "Bearer swordfish"))
	require.NoError(t, CheckToken("swordfish", "bearer swordfish"))
	for name, c := range map[string][2]string{
		"Other": {"swordfish", "Bearer swordfis"}, "Basic": {"swordfish", "Basic swordfish"}, "Bare": {"swordfish", "swordfish"},
		"None": {"swordfish", ""}, "NoSecret": {"", "Bearer "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, CheckToken(c[0], c[1]), ErrRefused)
		})
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	k, err := Key("")
	require.NoError(t, err)
	require.Nil(t, k)
	k, err = Key("0123456789abcdef")
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", string(k))
	for _, bad := range []string{"short", strings.Repeat("x", 257), "whsec_AAAA", "whsec_not base64"} {
		_, err := Key(bad)
		require.Error(t, err)
		require.NotContains(t, err.Error(), bad)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(exampleID, strconv.Itoa(exampleTime), exampleSignature, exampleBody)
	f.Add("", "-1", "v1, v1,=", "")
	f.Add("x", "9223372036854775807", "sha256=", "Bearer ")
	f.Fuzz(func(t *testing.T, id, at, signature, body string) {
		k, now := exampleKey(t), time.Unix(exampleTime, 0)
		// Nobody without the secret makes a message but the one of the example.
		known := id == exampleID && at == strconv.Itoa(exampleTime) && body == exampleBody
		if err := CheckStandard(k, id, at, signature, []byte(body), now); err == nil {
			require.True(t, known)
		}
		if CheckGitHub(exampleSecret, signature, []byte(body)) == nil {
			require.True(t, strings.EqualFold(GitHub(exampleSecret, []byte(body)), signature))
		}
		require.Error(t, CheckToken(exampleSecret, signature))
		// What the other side signs fits.
		if id != "" && len(id) <= MaxID {
			require.NoError(t, CheckStandard(k, id, strconv.Itoa(exampleTime), Standard(k, id, now, []byte(body)), []byte(body), now))
		}
	})
}
