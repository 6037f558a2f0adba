"""Two bases for frozen values.

People construct a `Value`, so a field it does not know is a mistake and refused. Only our own code makes a `Wire` value. Both are read from
Temporal with unknown fields ignored (see `perdure.activities.payloads`), so old and new workers can share a queue during a deploy.
"""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Wire(BaseModel):
    """A frozen value that crosses Temporal. Every field added after a release has a default."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")
