"""The transcript of a turn, and its number of tokens. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.base import replace
from perdure.turn.context_window import NO_CUT, Cut, left_out, sent
from perdure.turn.token_estimate import Estimate
from perdure.values.messages import (
    NO_DIGEST,
    AssistantMessage,
    Media,
    Message,
    Thinking,
    ToolMessage,
    UserMessage,
    chain,
)
from perdure.values.prices import REQUEST_TOKENS, bound
from perdure.values.reports import LeftOut


class MessagesAbsentError(Exception):
    """A decision needs the messages that precede the turn, and the transcript lacks them."""


@dataclass(frozen=True)
class Transcript:
    """The messages of a turn, and the parts of them that are not sent.

    Attributes:
        messages: The messages. Every call in them has its result, except calls of the open step.
        absent: The number of messages before them that are only in the history of the session. All
            other attributes count them.
        digest: The running digest of all messages.
        size_bytes: Their size, as canonical JSON.
        opening: The place of the message with the task.
        media: The images and files that the turn was given as its task and history. A model that
            does not take them all cannot be asked; images and files of messages to the running turn
            and of tool results are replaced by a sentence for such a model.
        call_ids: The ids of all tool calls in them.
        thinkers: The models whose thoughts are among them.
        cuts: The cuts for models whose window is too small, by model.
        floor: The least cut for every model: what the last handoff left out.
        last_cut: The cut of the last model call.
        left_out: The summary of `last_cut` and `left_before`; None if nothing is left out.
        left_before: The part that was left out when the messages were carried over from another
            run; None without an origin.
    """

    messages: tuple[Message, ...] = ()
    absent: int = 0
    digest: str = NO_DIGEST
    size_bytes: int = 0
    opening: int = 0
    media: tuple[Media, ...] = ()
    call_ids: frozenset[str] = frozenset()
    thinkers: frozenset[str] = frozenset()
    cuts: tuple[tuple[str, Cut], ...] = ()
    floor: Cut = NO_CUT
    last_cut: Cut = NO_CUT
    left_out: LeftOut | None = None
    left_before: LeftOut | None = None

    @property
    def length(self) -> int:
        """The number of all messages."""
        return self.absent + len(self.messages)

    def plus(self, message: Message, data: bytes) -> Transcript:
        """Return the transcript with another message, whose canonical bytes are `data`."""
        ids, thinkers, media = self.call_ids, self.thinkers, self.media
        if isinstance(message, AssistantMessage):
            ids = ids | {call.id for call in message.calls} if message.calls else ids
            thinkers = thinkers | {
                part.by
                for part in message.parts
                if isinstance(part, Thinking) and part.by is not None
            }
        elif isinstance(message, UserMessage) and message.id is None:
            media = (*media, *message.media)
        return replace(
            self,
            messages=(*self.messages, message),
            digest=chain(self.digest, data),
            size_bytes=self.size_bytes + len(data),
            media=media,
            call_ids=ids,
            thinkers=thinkers,
        )

    def cut(self, model: str) -> Cut:
        """Return the cut for this model."""
        return next((cut for name, cut in self.cuts if name == model), self.floor)

    def left_out_for(self, model: str) -> LeftOut | None:
        """Return the summary of what this model is not sent; None if nothing is left out."""
        return _together(self.left_before, left_out(self.messages, self.cut(model)))

    def with_cut(self, model: str, cut: Cut) -> Transcript:
        """Return the transcript with this cut for this model.

        An equal cut leaves out the same messages, however long the transcript has become.
        """
        cuts, gone = self.cuts, self.left_out
        if cut == self.last_cut and cut == self.cut(model):
            return self
        if cut != self.cut(model):
            cuts = (*((name, other) for name, other in cuts if name != model), (model, cut))
        if cut != self.last_cut:
            gone = _together(self.left_before, left_out(self.messages, cut))
        return replace(self, cuts=cuts, last_cut=cut, left_out=gone)

    def handed_over(self, floor: Cut) -> Transcript:
        """Return the transcript for another agent, with this least cut."""
        return replace(self, cuts=(), floor=floor)


def _together(before: LeftOut | None, now: LeftOut | None) -> LeftOut | None:
    if before is None or now is None:
        return before or now
    return LeftOut(
        results=before.results + now.results,
        steps=before.steps + now.steps,
        bytes=before.bytes + now.bytes,
    )


@dataclass(frozen=True)
class TokenCount:
    """The tokens of the next model call: an upper bound for money, an estimate for windows.

    Attributes:
        base: The most tokens of what precedes the messages.
        bound: The most tokens of the messages.
        asked_bound: The most tokens of the messages that the turn was given.
        known: The most input tokens of a call, as reported by the model `known_by`.
        known_at: The `bound` at that call.
        known_by: The model that reported them; empty before the first report.
        known_cut: The cut of that call.
        last_cut: The cut of the last call.
        saved: The part of `bound` that this cut leaves out.
        estimate: The approximate tokens of the base and the messages.
    """

    base: int = 0
    bound: int = 0
    asked_bound: int = 0
    known: int = 0
    known_at: int = 0
    known_by: str = ""
    known_cut: Cut = NO_CUT
    last_cut: Cut = NO_CUT
    saved: int = 0
    estimate: Estimate = Estimate()

    def plus(self, message: Message, size_bytes: int) -> TokenCount:
        """Return the count with another message, whose canonical form has `size_bytes`."""
        is_text = not isinstance(message, UserMessage) and not (
            isinstance(message, ToolMessage) and message.media
        )
        size_bound = size_bytes if is_text else bound(message)
        return replace(self, bound=self.bound + size_bound, estimate=self.estimate.plus(message))

    def on(self, base: int) -> TokenCount:
        """Return the count with at most `base` tokens before the messages."""
        return replace(self, base=base, estimate=self.estimate.on(base))

    def of_another(self, base: int) -> TokenCount:
        """Return the count for another agent's requests: reports for other agents do not apply."""
        count = replace(self, known_by="", known_cut=NO_CUT).on(base)
        return replace(count, estimate=replace(count.estimate, told=0, told_of=0))

    def reported(self, input_tokens: int, model: str, cut: Cut) -> TokenCount:
        """Return the count after a model reported the input tokens of a call with this cut."""
        estimate = self.estimate.counted(input_tokens, cut.tokens)
        return replace(
            self,
            known=input_tokens + REQUEST_TOKENS,
            known_at=self.bound,
            known_by=model,
            known_cut=cut,
            estimate=estimate,
        )

    def asked_with(self, cut: Cut, messages: tuple[Message, ...]) -> TokenCount:
        """Return the count for a call with this cut of the messages.

        An equal cut leaves out the same messages, however long the transcript has become.
        """
        if cut == self.last_cut:
            return self
        return replace(self, last_cut=cut, saved=self._saved(cut, messages))

    def most_input(self, model: str, cut: Cut, messages: tuple[Message, ...]) -> int:
        """Return the most input tokens of the next call of this model.

        Reports for another model or with another cut are ignored. The messages are read only if the
        cut is not the cut of the last call.
        """
        if (model, cut) == (self.known_by, self.known_cut):
            return self.known + self.bound - self.known_at
        saved = self.saved if cut == self.last_cut else self._saved(cut, messages)
        return self.base + self.bound - saved

    def _saved(self, cut: Cut, messages: tuple[Message, ...]) -> int:
        if cut == NO_CUT:
            return 0
        return self.bound - sum(map(bound, sent(messages, cut)))
