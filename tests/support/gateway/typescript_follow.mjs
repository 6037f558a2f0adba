// Prints the items of a turn, one in a line: node typescript_follow.mjs CLIENT URL TOKEN TURN
const [client, url, token, turn] = process.argv.slice(2);
const { Perdure } = await import(client);
for await (const item of new Perdure(url, token).turn(turn).live()) console.log(JSON.stringify(item));
