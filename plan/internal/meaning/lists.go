package meaning

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed lists.txt
var listsFile string

// lists holds the word lists of lists.txt by name.
var lists = sync.OnceValue(func() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for line := range strings.Lines(listsFile) {
		if name, words, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && name[0] != '#' {
			all[name] = wordSet(words)
		}
	}
	return all
})

// wordsOf returns the words of a list. It panics if there is no such list, so that any test finds a wrong
// name.
func wordsOf(name string) map[string]bool {
	words := lists()[name]
	if words == nil {
		panic("no list of words " + name)
	}
	return words
}

// wordsByLanguage returns the lists "name en", "name de" and so on by language.
func wordsByLanguage(name string) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for key, words := range lists() {
		if lang, ok := strings.CutPrefix(key, name+" "); ok && len(lang) == 2 {
			out[lang] = words
		}
	}
	return out
}

// wordSet splits a list at ", ".
func wordSet(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Split(list, ", ") {
		m[w] = true
	}
	return m
}

// stemAt returns the first offset in s of any stem of a list, or -1.
func stemAt(s, list string) int {
	at := -1
	for stem := range wordsOf("stems " + list) {
		if i := strings.Index(s, stem); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	return at
}
