package memory

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Bounds of vectors.
const (
	// MaxModel bounds the name of a model that makes vectors, in bytes.
	MaxModel = 128
	// MaxDimensions bounds a vector.
	MaxDimensions = 4096
	// MaxSimilar is how many entries a search takes by their meaning.
	MaxSimilar = 256
	// MaxToEmbed is how many entries are handed out at once to have vectors made of them, for EmbedTime.
	MaxToEmbed = 100
	EmbedTime  = 2 * time.Minute
)

// maxEmbedTries is how often a model is asked for the vector of an entry that it refuses.
const maxEmbedTries = 6

// EmbedRetry says after how long a model is asked again for a vector that it has refused so many times;
// false if it is not asked again.
func EmbedRetry(refused int) (pause time.Duration, again bool) {
	if refused >= maxEmbedTries {
		return 0, false
	}
	return time.Minute << (refused - 1), true
}

// MaxFault bounds the reason why a model made no vector, in bytes.
const MaxFault = 512

// Fault is why a model made no vector of an entry.
type Fault struct{ Model, Message string }

// NewFault returns a fault within its bounds.
func NewFault(model, message string) (*Fault, error) {
	message = strings.TrimSpace(plain(strings.ToValidUTF8(message, "")))
	if model == "" || !named(model, MaxModel) || message == "" {
		return nil, invalid("fault", "a fault has a model of at most 128 bytes, and a message")
	}
	return &Fault{Model: model, Message: errs.Clip(message, MaxFault-len("…"))}, nil
}

// faultText is a fault for people; refused is how often there was one, negative if the model is not
// asked again.
func faultText(refused int, message string) string {
	switch {
	case message == "":
		return ""
	case refused < 0:
		return "the model was asked " + strconv.Itoa(maxEmbedTries) + " times and is not asked again: " + message
	}
	return "the model is asked again: " + message
}

// SetVectorFault sets why there is no vector, from what a store keeps: how often the model refused,
// negative if it is not asked again, and what it answered.
func (e *Entry) SetVectorFault(refused int, message string) {
	e.VectorFault = faultText(refused, message)
}

// Embedding is a vector for a text, made by a model. Vectors of different models cannot be compared.
type Embedding struct {
	Model  string
	Values []float32
}

// NewEmbedding returns a vector of length 1.
func NewEmbedding(model string, values []float32) (*Embedding, error) {
	var sum float64
	for _, v := range values {
		sum += float64(v) * float64(v)
	}
	switch {
	case model == "" || !named(model, MaxModel):
		return nil, invalid("embedding.model", "the model of a vector has at most 128 bytes and no control characters")
	case len(values) == 0 || len(values) > MaxDimensions:
		return nil, invalid("embedding.values", "a vector has from 1 to 4096 dimensions")
	case !(sum > 0) || math.IsInf(sum, 0):
		return nil, invalid("embedding.values", "a vector has finite values, of which one is not 0")
	}
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = float32(float64(v) / math.Sqrt(sum))
	}
	return &Embedding{Model: model, Values: out}, nil
}

// floatBytes is the size of a value as it is stored.
const floatBytes = 4

// Size is that of the vector as it is stored, in bytes.
func (e *Embedding) Size() int { return floatBytes * len(e.Values) }

// Bytes are the values as they are stored: 32-bit floats, little endian.
func (e *Embedding) Bytes() []byte {
	out := make([]byte, 0, e.Size())
	for _, v := range e.Values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// Similarity is the cosine of the angle to a stored vector; false if it has another number of dimensions.
func (e *Embedding) Similarity(stored []byte) (float64, bool) {
	if len(stored) != e.Size() {
		return 0, false
	}
	var dot float32
	for i, v := range e.Values {
		dot += v * math.Float32frombits(binary.LittleEndian.Uint32(stored[4*i:]))
	}
	return float64(dot), true
}

// Similar keeps the MaxSimilar most similar of many hits.
type Similar struct {
	// hits are a heap with the least similar one first.
	hits []Hit
}

// nearer orders hits by their similarity, of equals the one that was first written last before the others.
func nearer(a, b *Hit) int {
	return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), cmp.Compare(b.Entry.ID, a.Entry.ID))
}

// Add adds a hit, which takes the place of the least similar one where there are MaxSimilar.
func (s *Similar) Add(h Hit) {
	if len(s.hits) < MaxSimilar {
		s.hits = append(s.hits, h)
		for i := len(s.hits) - 1; i > 0; {
			up := (i - 1) / 2
			if nearer(&s.hits[i], &s.hits[up]) <= 0 {
				return
			}
			s.hits[i], s.hits[up] = s.hits[up], s.hits[i]
			i = up
		}
		return
	}
	if nearer(&h, &s.hits[0]) >= 0 {
		return
	}
	s.hits[0] = h
	for i := 0; ; {
		worst := i
		for _, down := range []int{2*i + 1, 2*i + 2} {
			if down < len(s.hits) && nearer(&s.hits[down], &s.hits[worst]) > 0 {
				worst = down
			}
		}
		if worst == i {
			return
		}
		s.hits[i], s.hits[worst] = s.hits[worst], s.hits[i]
		i = worst
	}
}

// Best are the hits that were kept, the most similar first. Nothing is added after it.
func (s *Similar) Best() []Hit {
	slices.SortFunc(s.hits, func(a, b Hit) int { return nearer(&a, &b) })
	return s.hits
}

// fusion is the constant of reciprocal rank fusion: the larger, the less the first places count beside the
// others. 60 is what its authors found.
const fusion = 60

// Fuse makes one list of hits by words and by meaning, each in its own order. A hit scores 1/(60 + its place)
// in each list that has it, in billionths: weights of words and angles cannot be compared, but places can.
func Fuse(byWords, byMeaning []Hit) []Hit {
	at := map[string]int{}
	var out []Hit
	for _, list := range [][]Hit{byWords, byMeaning} {
		for i, h := range list {
			j, known := at[h.Entry.ID]
			if !known {
				j = len(out)
				at[h.Entry.ID] = j
				h.Score = 0
				out = append(out, h)
			}
			out[j].Similarity = max(out[j].Similarity, h.Similarity)
			out[j].Score += 1e9 / int64(fusion+i+1)
		}
	}
	slices.SortStableFunc(out, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), b.Entry.UpdateTime.Compare(a.Entry.UpdateTime), cmp.Compare(b.Entry.ID, a.Entry.ID))
	})
	return out
}
