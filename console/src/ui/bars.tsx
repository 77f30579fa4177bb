// A small chart: one bar for each row, with its figure in words.
export interface Bar {
  name: string;
  value: number;
  text: string;
}

const width = 300;
const height = 14;

export function Bars({ label, bars }: { label: string; bars: Bar[] }) {
  const most = Math.max(...bars.map((b) => b.value), 1);
  return (
    <table className="bars" aria-label={label}>
      <tbody>
        {bars.map((b) => (
          <tr key={b.name}>
            <th scope="row">{b.name}</th>
            <td>
              <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
                <rect className="ground" width={width} height={height} rx="3" />
                <rect className="part" width={Math.max((b.value / most) * width, b.value > 0 ? 2 : 0)} height={height} rx="3" />
              </svg>
            </td>
            <td className="number">{b.text}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
