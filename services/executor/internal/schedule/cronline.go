package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cronFields are the fields of a line, with the names that some of their values have, in order from first on.
var cronFields = [...]struct {
	name        string
	names       []string
	first, last int
}{
	{name: "minute", last: 59},
	{name: "hour", last: 23},
	{name: "day of month", first: 1, last: 31},
	{name: "month", names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}, first: 1, last: 12},
	{name: "day of week", names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}, last: 7},
}

// checkCron refuses lines that the parser would read in a way that hardly anybody means: ranges that go
// backwards, empty items, intervals with parts of seconds. It is applied to new schedules only: existing ones
// keep their times.
func checkCron(text string) error {
	fields := strings.Fields(text)
	if strings.HasPrefix(text, "@") {
		return checkCronName(text)
	}
	if n := len(fields); n != len(cronFields) {
		seconds := map[bool]string{true: "; seconds and years are not written"}[n > len(cronFields)]
		return fmt.Errorf("it has %d fields%s", n, seconds)
	}
	for i, field := range fields {
		for item := range strings.SplitSeq(field, ",") {
			if err := checkItem(i, item); err != nil {
				return fmt.Errorf("the %s %q: %w", cronFields[i].name, field, err)
			}
		}
	}
	return nil
}

// cronNames stand for whole lines.
var cronNames = []string{"yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"}

// checkCronName looks at what begins with @.
func checkCronName(text string) error {
	name, rest, _ := strings.Cut(text[1:], " ")
	if name != "every" {
		if slices.Contains(cronNames, name) && rest == "" || name == "reboot" {
			return nil
		}
		return fmt.Errorf("there is no %s; there are @%s", text, strings.Join(cronNames, ", @"))
	}
	d, err := time.ParseDuration(strings.TrimSpace(rest))
	if err != nil {
		return fmt.Errorf("%q is no interval, such as 90s, 15m or 2h30m", strings.TrimSpace(rest))
	}
	if d < MinEvery {
		return fmt.Errorf("the interval is shorter than %s", MinEvery)
	}
	return nil
}

func checkItem(field int, item string) error {
	if item == "" {
		return errors.New("an item is missing at a comma")
	}
	values, step, stepped := strings.Cut(item, "/")
	if stepped {
		if n, err := strconv.Atoi(step); err != nil || n <= 0 {
			return fmt.Errorf("%q is no step", step)
		}
	}
	if values == "*" || values == "?" {
		return nil
	}
	from, to, ranged := strings.Cut(values, "-")
	low, err := cronValue(field, from)
	if err != nil || !ranged {
		return err
	}
	high, err := cronValue(field, to)
	if err != nil {
		return err
	}
	if cronFields[field].name == "day of week" && high == 0 {
		high = 7 // a week may end on a Sunday
	}
	if high < low {
		return fmt.Errorf("the range %s goes backwards; write it as two, such as 22-23,0-2 for the hours from 22 to 2", values)
	}
	return nil
}

func cronValue(field int, text string) (int, error) {
	f := cronFields[field]
	if n := slices.Index(f.names, strings.ToUpper(text)); n >= 0 {
		return n + f.first, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is no number%s", text, map[bool]string{true: " and no name"}[f.names != nil])
	}
	if int(n) < f.first || int(n) > f.last {
		return 0, fmt.Errorf("%d is not from %d to %d", n, f.first, f.last)
	}
	return int(n), nil
}
