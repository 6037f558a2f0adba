/** The types of the operations, from the OpenAPI document. */
import type { paths } from "./schema.js";

export type Method = "get" | "post" | "patch" | "delete";
/** The paths that have a method. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: [NonNullable<paths[P][M]>] extends [never] ? never : P;
}[keyof paths];
type Operation<M extends Method, P extends PathOf<M>> = NonNullable<paths[P][M]>;

type Part<O, K extends string> = O extends { parameters: { [k in K]?: infer V } } ? V : never;
type Json<R> = R extends { content: { "application/json": infer V } } ? V : undefined;
type Body<O> = O extends { requestBody?: infer R } ? Json<R> : undefined;

/** How long to wait: until a signal. */
export interface Waiting {
  signal?: AbortSignal | undefined;
}

/** What an operation takes. */
export type Input<M extends Method, P extends PathOf<M>, O = Operation<M, P>> = Waiting & {
  query?: Part<O, "query">;
  /** Whether the request may be repeated while the gateway is away: its body has an id, or it only reads. */
  repeat?: boolean;
} & ([Part<O, "path">] extends [undefined] ? unknown : { path: Part<O, "path"> }) &
  (undefined extends Body<O> ? { body?: Body<O> } : { body: Body<O> });

/** What an operation answers when it succeeds. */
export type Answer<M extends Method, P extends PathOf<M>, O = Operation<M, P>> = O extends { responses: infer R }
  ? { [S in keyof R]: S extends 200 | 202 | 204 ? Json<R[S]> : never }[keyof R]
  : never;

/** The operations with pages, and what their lists have. */
export type PathOfPages = { [P in PathOf<"get">]: Answer<"get", P> extends { next?: string | null } ? P : never }[PathOf<"get">];
export type EntryOf<P extends PathOfPages, A = Answer<"get", P>> = { [K in keyof A]-?: A[K] extends (infer E)[] ? E : never }[keyof A];
export type Query<P extends PathOf<"get">> = NonNullable<Part<Operation<"get", P>, "query">>;
