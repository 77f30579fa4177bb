// A field for text with faults underlined: the marks lie in a copy of the text behind the field.
import { type RefObject, useMemo, useRef } from "react";
import { type Mark, pieces } from "./marks";

interface Props {
  text: string;
  marks: Mark[];
  onChange: (text: string) => void;
  field: RefObject<HTMLTextAreaElement | null>;
  label: string;
  placeholder: string;
  /** onCaret is told where one types. */
  onCaret?: (at: number) => void;
}

/** tooLong is from where on the marks are left out, because each key would draw them anew. */
const tooLong = 200_000;

export function Editor({ text, marks, onChange, field, label, placeholder, onCaret }: Props) {
  const behind = useRef<HTMLPreElement>(null);
  const shown = useMemo(() => (text.length > tooLong ? [] : pieces(text, marks)), [text, marks]);
  return (
    <div className="editor">
      <pre ref={behind} aria-hidden="true">
        {shown.map((p, i) =>
          p.level ? (
            <mark key={i} className={p.level}>
              {p.text}
            </mark>
          ) : (
            p.text
          ),
        )}
        {"\n"}
      </pre>
      <textarea
        ref={field}
        className="code"
        aria-label={label}
        aria-describedby="findings"
        placeholder={placeholder}
        spellCheck={false}
        value={text}
        onChange={(e) => onChange(e.target.value)}
        onSelect={(e) => onCaret?.(e.currentTarget.selectionStart)}
        onScroll={(e) => {
          if (behind.current) {
            behind.current.scrollTop = e.currentTarget.scrollTop;
            behind.current.scrollLeft = e.currentTarget.scrollLeft;
          }
        }}
      />
    </div>
  );
}
