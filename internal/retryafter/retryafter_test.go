package retryafter_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/retryafter"
)

func TestOf(t *testing.T) {
	t.Parallel()
	date := func(in time.Duration) string { return time.Now().Add(in).UTC().Format(http.TimeFormat) }
	for name, tt := range map[string]struct {
		seconds, millis string
		least, most     time.Duration
	}{
		"Nothing":             {"", "", 0, 0},
		"Seconds":             {"7", "", 7 * time.Second, 7 * time.Second},
		"SpacesAround":        {" 7 ", "", 7 * time.Second, 7 * time.Second},
		"Fraction":            {"1.5", "", 1500 * time.Millisecond, 1500 * time.Millisecond},
		"Zero":                {"0", "", 0, 0},
		"Negative":            {"-3", "", 0, 0},
		"Words":               {"soon", "", 0, 0},
		"NotANumber":          {"NaN", "", 0, 0},
		"TwoHours":            {"7200", "", time.Hour, time.Hour},
		"BeyondADuration":     {"999999999999999999999", "", time.Hour, time.Hour},
		"BeyondAFloat":        {"1e999", "", time.Hour, time.Hour},
		"Infinity":            {"Inf", "", time.Hour, time.Hour},
		"Milliseconds":        {"", "250", 250 * time.Millisecond, 250 * time.Millisecond},
		"MillisecondsFirst":   {"9", "250", 250 * time.Millisecond, 250 * time.Millisecond},
		"MillisecondsOfYears": {"", "9223372036854775807", time.Hour, time.Hour},
		"WordsInMilliseconds": {"9", "soon", 9 * time.Second, 9 * time.Second},
		"Date":                {date(30 * time.Second), "", 25 * time.Second, 30 * time.Second},
		"DateInTwoDays":       {date(48 * time.Hour), "", time.Hour, time.Hour},
		"DateInAges":          {"Fri, 31 Dec 9999 23:59:59 GMT", "", time.Hour, time.Hour},
		"DateInThePast":       {"Mon, 02 Jan 2006 15:04:05 GMT", "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			h.Set("Retry-After", tt.seconds)
			h.Set("Retry-After-Ms", tt.millis)
			got := retryafter.Of(h)
			require.GreaterOrEqual(t, got, tt.least)
			require.LessOrEqual(t, got, tt.most)
		})
	}
}

func FuzzOf(f *testing.F) {
	for _, seed := range []string{"7", "1e400", "-0", "0x1p-2", "Fri, 31 Dec 9999 23:59:59 GMT", "+Inf", "nan"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, seconds, millis string) {
		got := retryafter.Of(http.Header{"Retry-After": {seconds}, "Retry-After-Ms": {millis}})
		require.GreaterOrEqual(t, got, time.Duration(0))
		require.LessOrEqual(t, got, retryafter.Max)
	})
}
