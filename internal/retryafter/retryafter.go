// Package retryafter owns for how long another side may ask to be left alone: servers of models, receivers of
// webhooks, whoever the actor http calls. It reads what they send and bounds it, so that no server can park
// the work of a run. It must not know who asks.
package retryafter

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Max is the longest pause that counts; workgraph.MaxRetryAfter is the same for the attempts of runs.
const Max = time.Hour

// Of is the pause that a response asks for by Retry-After-Ms or Retry-After, from 0 to Max; 0 if by none. The
// second is a number of seconds, which some servers write with a fraction, or a date (RFC 9110, 10.2.3).
func Of(h http.Header) time.Duration {
	if pause, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok && pause > 0 {
		return pause
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if pause, ok := number(v, time.Second); ok {
		return pause
	}
	if at, err := http.ParseTime(v); err == nil {
		return Bound(time.Until(at))
	}
	return 0
}

// Bound is a pause within 0 and Max.
func Bound(pause time.Duration) time.Duration { return max(0, min(pause, Max)) }

// number reads a number of units; false if the text is none.
func number(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(n) {
		return 0, false
	}
	// Beyond the range of a Duration the conversion would be undefined.
	return time.Duration(max(0, min(n, float64(Max/unit))) * float64(unit)), true
}
