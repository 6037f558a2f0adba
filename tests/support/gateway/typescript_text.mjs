// What follows from the items of several connections, for each row: node typescript_text.mjs FOLDER ROWS
const [folder, rows] = process.argv.slice(2);
const { Text } = await import(`${folder}/text.js`);

function seen(connections) {
  const text = new Text();
  return connections.flatMap((items, number) => {
    if (number) text.reattached();
    return items.flatMap((item) => [...text.see(item)]);
  });
}

console.log(JSON.stringify(JSON.parse(rows).map(seen)));
