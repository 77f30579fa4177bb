package lexicon

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Block says what a line of pseudo code does to the lines around it.
type Block uint16

// The roles of lines. A word may have several: "fork" begins a block of parallel parts, and also starts one
// step.
const (
	// BlockBegin and BlockEnd frame steps that belong together.
	BlockBegin Block = 1 << iota
	BlockEnd
	// BlockParallel and BlockSequence say how the steps below them run.
	BlockParallel
	BlockSequence
	// BlockIf, BlockElse and BlockLoop make the steps below them conditional or repeated.
	BlockIf
	BlockElse
	BlockLoop
	// BlockBranch begins one of several parallel parts.
	BlockBranch
	// BlockJoin waits for steps. BlockSpawn starts a step that runs in parallel with the following ones.
	// BlockRun may stand before any step.
	BlockJoin
	BlockSpawn
	BlockRun
)

var blockNames = [...]string{"begin", "end", "parallel", "sequence", "if", "else", "loop", "branch", "join", "spawn", "run"}

// maxBlockWords is the number of words of the longest block phrase.
const maxBlockWords = 5

// block adds one phrase of pseudo code. Phrases of parallel and sequence are stems; they may stand anywhere
// in a line.
func (l *lexicon) block(role, phrase string) {
	i := slices.Index(blockNames[:], role)
	if i < 0 {
		panic("unknown key block " + role)
	}
	b := Block(1 << i)
	l.blocks[phrase] |= b
	if b == BlockParallel || b == BlockSequence {
		l.stems[b] = append(l.stems[b], phrase)
	}
}

// LeadingBlock returns the roles of the longest pseudo code phrase at the start of a folded text, and its
// length. In scripts without spaces between words the phrase may end anywhere.
func LeadingBlock(folded string) (roles Block, length int) {
	blocks := data().blocks
	words := 0
	for i, r := range folded {
		end := i + utf8.RuneLen(r)
		spaced := end >= len(folded) || strings.IndexByte(" :(){}[],;.!=", folded[end]) >= 0 || strings.HasPrefix(folded[end:], "：")
		if spaced || r >= 0x2e80 && !hangul(r) {
			if b, ok := blocks[folded[:end]]; ok {
				roles, length = b, end
			}
		}
		if words += btoi(spaced); words > maxBlockWords || i > 80 {
			break
		}
	}
	return roles, length
}

func hangul(r rune) bool { return r >= 0xac00 && r <= 0xd7a3 }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// HasBlock reports whether a folded text contains a stem of one of the roles, which are BlockParallel and
// BlockSequence.
func HasBlock(role Block, folded string) bool {
	for _, stem := range data().stems[role] {
		if strings.Contains(folded, stem) {
			return true
		}
	}
	return false
}
