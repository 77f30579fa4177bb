package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cronFields are the fields of a line, with the names that some of their values have, in order from first on.
var cronFields = [...]struct {
	name  string
	names []string
	first int
}{
	{name: "minute"},
	{name: "hour"},
	{name: "day of month"},
	{name: "month", names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}, first: 1},
	{name: "day of week", names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

// checkCron refuses what the parser would read as something that hardly anybody means: ranges that go backwards, empty items, intervals of
// parts of seconds. It is asked of new schedules only: those that exist keep the times that they have.
func checkCron(text string) error {
	fields := strings.Fields(text)
	if strings.HasPrefix(text, "@") {
		return nil
	}
	if len(fields) != len(cronFields) {
		return fmt.Errorf("it has %d fields", len(fields))
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
	return int(n), nil
}
