package catalog

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// ReasonSlugInvalid refuses a slug that could be something else.
	ReasonSlugInvalid = "WORKFLOW_SLUG_INVALID"
	// ReasonSlugTaken refuses a slug that another workflow has.
	ReasonSlugTaken = "WORKFLOW_SLUG_TAKEN"

	// maxBase leaves room for a number behind it.
	maxBase = 80
	noName  = "workflow"
)

var notSlug = regexp.MustCompile(`[^a-z0-9]+`)

// Base is the slug of a name: lower case, Latin letters without their marks, with a dash for everything else
// than letters and digits. A name in another script has none of its own.
func Base(name string) string {
	s := strings.Trim(notSlug.ReplaceAllString(plain(errs.Clip(name, 4*maxBase)), "-"), "-")
	if len(s) > maxBase {
		s = strings.TrimRight(s[:maxBase], "-")
	}
	if s == "" {
		return noName
	}
	return s
}

// plain is a text in lower case, without the marks of its letters.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, strings.ToLower(norm.NFKD.String(s)))
	return strings.NewReplacer("ß", "ss", "æ", "ae", "œ", "oe", "ø", "o", "đ", "d", "ł", "l", "ı", "i").Replace(s)
}

// Numbered is a base with a number behind it, which 1 leaves out.
func Numbered(base string, n int64) string {
	if n <= 1 {
		return base
	}
	return base + "-" + strconv.FormatInt(n, 10)
}

// CheckSlug refuses a slug of a caller that looks like an id.
func CheckSlug(slug string) error {
	if strings.HasPrefix(slug, Prefix+"_") {
		return errs.New(errs.InvalidArgument, ReasonSlugInvalid, "a slug must not begin with %s_, as ids do", Prefix)
	}
	return nil
}

// SlugTaken refuses a slug that another workflow has.
func SlugTaken(slug string) error {
	return errs.New(errs.AlreadyExists, ReasonSlugTaken, "there is a workflow %q already", slug).
		Hint("add a version to it, or choose another slug; the slug of a deleted workflow is free after 30 days")
}
