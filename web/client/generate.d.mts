export declare const SCHEMA: string;
export declare function types(document: unknown): Promise<string>;
