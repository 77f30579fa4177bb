package pg

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// packed is an array in the form that goes over the wire. Only connections that took packs send it.
type packed []byte

// takePacks makes a connection send packed arrays as they are.
func takePacks(_ context.Context, conn *pgx.Conn) error {
	m := conn.TypeMap()
	for _, oid := range []uint32{pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.Int4ArrayOID, pgtype.Int2ArrayOID, pgtype.BoolArrayOID,
		pgtype.ByteaArrayOID, pgtype.TimestamptzArrayOID} {
		if t, ok := m.TypeForOID(oid); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: packCodec{t.Codec}})
		}
	}
	return nil
}

type packCodec struct{ pgtype.Codec }

// PlanEncode implements pgtype.Codec.
func (c packCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(packed); !ok {
		return c.Codec.PlanEncode(m, oid, format, value)
	}
	if format != pgtype.BinaryFormatCode {
		return nil
	}
	return packPlan{}
}

type packPlan struct{}

// Encode implements pgtype.EncodePlan.
func (packPlan) Encode(value any, buf []byte) ([]byte, error) {
	return append(buf, value.(packed)...), nil
}

// packHead is the length of the head of an array of one dimension. The elements follow, each after its
// length.
const packHead = 20

func packArray(b packed, n int, element uint32) packed {
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, element)
	}
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1)
}

// packNull appends a null to an array that begins the buffer.
func packNull(b packed) packed {
	b[7] = 1
	return binary.BigEndian.AppendUint32(b, 1<<32-1)
}

func packInt8(b packed, v int64) packed {
	b = binary.BigEndian.AppendUint32(b, 8)
	return binary.BigEndian.AppendUint64(b, uint64(v))
}

// y2k is the instant from which the database counts microseconds.
var y2k = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// packColumn is how the values that get returns, a func(T) V, are packed; nil if there is no short way for
// them.
func packColumn[T any](get any) func([]T) packed {
	fixed := func(rows int, element uint32, size int) packed {
		return packArray(make(packed, 0, packHead+rows*(4+size)), rows, element)
	}
	switch get := get.(type) {
	case func(T) string:
		return func(rows []T) packed {
			size := packHead
			for _, r := range rows {
				size += 4 + len(get(r))
			}
			b := packArray(make(packed, 0, size), len(rows), pgtype.TextOID)
			for _, r := range rows {
				s := get(r)
				b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
			}
			return b
		}
	case func(T) []byte:
		return func(rows []T) packed {
			size := packHead
			for _, r := range rows {
				size += 4 + len(get(r))
			}
			b := packArray(make(packed, 0, size), len(rows), pgtype.ByteaOID)
			for _, r := range rows {
				v := get(r)
				if v == nil {
					b = packNull(b)
					continue
				}
				b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
			}
			return b
		}
	case func(T) int64:
		return func(rows []T) packed {
			b := fixed(len(rows), pgtype.Int8OID, 8)
			for _, r := range rows {
				b = packInt8(b, get(r))
			}
			return b
		}
	case func(T) int32:
		return func(rows []T) packed {
			b := fixed(len(rows), pgtype.Int4OID, 4)
			for _, r := range rows {
				b = binary.BigEndian.AppendUint32(b, 4)
				b = binary.BigEndian.AppendUint32(b, uint32(get(r)))
			}
			return b
		}
	case func(T) int16:
		return func(rows []T) packed {
			b := fixed(len(rows), pgtype.Int2OID, 2)
			for _, r := range rows {
				b = binary.BigEndian.AppendUint32(b, 2)
				b = binary.BigEndian.AppendUint16(b, uint16(get(r)))
			}
			return b
		}
	case func(T) bool:
		return func(rows []T) packed {
			b := fixed(len(rows), pgtype.BoolOID, 1)
			for _, r := range rows {
				b = append(binary.BigEndian.AppendUint32(b, 1), 0)
				if get(r) {
					b[len(b)-1] = 1
				}
			}
			return b
		}
	case func(T) time.Time:
		return func(rows []T) packed {
			b := fixed(len(rows), pgtype.TimestamptzOID, 8)
			for _, r := range rows {
				b = packInt8(b, get(r).UnixMicro()-y2k)
			}
			return b
		}
	case func(T) *time.Time:
		return func(rows []T) packed {
			b := fixed(len(rows), pgtype.TimestamptzOID, 8)
			for _, r := range rows {
				if t := get(r); t == nil {
					b = packNull(b)
				} else {
					b = packInt8(b, t.UnixMicro()-y2k)
				}
			}
			return b
		}
	}
	return nil
}
