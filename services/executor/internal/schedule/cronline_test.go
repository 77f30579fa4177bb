package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCronWords(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"61 * * * *":        "the minute \"61\": 61 is not from 0 to 59",
		"* 24 * * *":        "the hour \"24\": 24 is not from 0 to 23",
		"* * 0 * *":         "the day of month \"0\": 0 is not from 1 to 31",
		"* * * foo *":       "\"foo\" is no number and no name",
		"0 0 9 * * MON-FRI": "it has 6 fields; seconds and years are not written",
		"@dayly":            "there is no @dayly; there are @yearly",
		"@every soon":       "\"soon\" is no interval, such as 90s",
		"@every":            "\"\" is no interval",
		"@every 1ms":        "the interval is shorter than",
	} {
		require.ErrorContains(t, checkCron(line), says, line)
	}
	for _, line := range []string{"*/5 * * * *", "0 9 * * MON-FRI", "0 0 1,15 * 5", "0 22-23,0-2 * * 7", "@daily", "@every 90s"} {
		require.NoError(t, checkCron(line), line)
	}
}
