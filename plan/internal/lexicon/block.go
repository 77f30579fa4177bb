package lexicon

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Block says what a line of pseudo code does to the lines around it.
type Block uint16

// The roles of lines. A word may have several: "fork" begins a block whose parts run side by side, and starts
// one step.
const (
	// BlockBegin and BlockEnd frame steps that belong together.
	BlockBegin Block = 1 << iota
	BlockEnd
	// BlockParallel and BlockSequence say how the steps below them run.
	BlockParallel
	BlockSequence
	// BlockIf, BlockElse and BlockLoop make the steps below them run on a condition, or again and again.
	BlockIf
	BlockElse
	BlockLoop
	// BlockBranch begins one of the parts that run side by side.
	BlockBranch
	// BlockJoin waits for steps, BlockSpawn starts one that runs beside what follows, BlockRun stands before
	// any step.
	BlockJoin
	BlockSpawn
	BlockRun
)

var blockNames = [...]string{"begin", "end", "parallel", "sequence", "if", "else", "loop", "branch", "join", "spawn", "run"}

// maxBlockWords is the number of words that the longest phrase of a block has.
const maxBlockWords = 5

// block adds one phrase of pseudo code. Those of parallel and sequence are stems, which may stand anywhere in
// a line.
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

// LeadingBlock returns the roles of the longest phrase of pseudo code that a text begins with, and its length
// in the text folded. In scripts that put no spaces between words it may end anywhere.
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

// HasBlock reports whether a stem of one of the roles, which are BlockParallel and BlockSequence, stands in a
// folded text.
func HasBlock(role Block, folded string) bool {
	for _, stem := range data().stems[role] {
		if strings.Contains(folded, stem) {
			return true
		}
	}
	return false
}
