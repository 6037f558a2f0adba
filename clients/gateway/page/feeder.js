// Events in slices, so that thousands at once leave the page answering keys.

import { breath } from "./api.js";

/** Passes each event on, a slice at a time; `flush` is called after each slice. */
export class Feeder {
  constructor(handle, flush) {
    this.handle = handle;
    this.flush = flush;
    this.waiting = [];
    this.isBusy = false;
  }

  push(event) {
    this.waiting.push(event);
    if (!this.isBusy) this.run();
  }

  async run() {
    this.isBusy = true;
    await Promise.resolve(); // the events of one network packet come together
    while (this.waiting.length) {
      const slice = this.waiting.splice(0, 8);
      for (const event of slice) this.handle(event);
      this.flush();
      await breath();
    }
    this.isBusy = false;
  }
}
