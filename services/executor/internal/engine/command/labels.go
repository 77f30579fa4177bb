package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// ReasonLabelsInvalid is the reason when the labels of a run are not valid.
	ReasonLabelsInvalid = "LABELS_INVALID"

	maxLabels      = 64
	maxLabelKey    = 63
	maxLabelLength = 256
)

// CheckLabels applies the rules for labels of a start to labels from another source.
func CheckLabels(labels map[string]string) error {
	refused := func(format string, args ...any) *errs.Error {
		e := errs.New(errs.InvalidArgument, ReasonLabelsInvalid, format, args...)
		return e.Violate("labels", ReasonLabelsInvalid, e.Message)
	}
	if n := len(labels); n > maxLabels {
		return refused("a run has %d labels at most, not %d", maxLabels, n)
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if !labelKey(k) {
			return refused("%.80q is no key of a label", k).
				Hint(fmt.Sprintf("use 1 to %d of a-z, 0-9, and between them . _ / -", maxLabelKey))
		}
		if v := labels[k]; utf8.RuneCountInString(v) > maxLabelLength || strings.ContainsRune(v, 0) || !utf8.ValidString(v) {
			return refused("the label %q must have at most %d characters, NUL not among them", k, maxLabelLength)
		}
	}
	return nil
}

func labelKey(k string) bool {
	plain := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	if k == "" || len(k) > maxLabelKey || !plain(k[0]) || !plain(k[len(k)-1]) {
		return false
	}
	for i := range len(k) {
		if !plain(k[i]) && !strings.ContainsRune("._/-", rune(k[i])) {
			return false
		}
	}
	return true
}
